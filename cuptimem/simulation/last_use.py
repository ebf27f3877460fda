"""Which variables of a running function are not read again: live variables of its bytecode.

A name is dead at a statement if no way through the function from there reads it before it is bound again. So a `del` of
it before that statement changes nothing for the program.
"""

import dis
import re
import sys
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from cuptimem.simulation.places import is_programs

_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL)")
_LEAVES = re.compile(r"RETURN|RAISE|^JUMP_(?:FORWARD|BACKWARD|ABSOLUTE)")
_ENDS = re.compile(r"STORE|DELETE|POP_TOP|JUMP|FOR_ITER|RETURN|RAISE|RESUME")  # of statements, and of parts of some
_FUNCTION = 0x1  # of co_flags: its variables have numbers


def unread(frame: FrameType | None) -> list[tuple[str, int, FrameType, Any]]:
    """Variables of the program's own frames, from this one outwards, that are not read again: the name, the line of its
    last use, the frame and the value."""
    found: list[tuple[str, int, FrameType, Any]] = []
    while frame is not None:
        code = frame.f_code
        if is_programs(code.co_filename) and (names := dead_at(code, frame.f_lasti)):
            variables = frame.f_locals
            found += [(name, line, frame, variables[name]) for name, line in names if name in variables]
            forget(frame, variables)
        frame = frame.f_back
    return found


def forget(frame: FrameType, variables: Any) -> None:
    """Until Python 3.12 a function's f_locals are a copy, which would hold what its variables let go of."""
    if sys.version_info < (3, 13) and frame.f_code.co_flags & _FUNCTION:
        variables.clear()


@lru_cache(None)
def dead_at(code: CodeType, offset: int) -> tuple[tuple[str, int], ...]:
    """The names that nothing reads from the statement of an instruction on, each with the line of its last use."""
    return _analysed(code).dead(offset)


@lru_cache(None)
def _analysed(code: CodeType) -> "_Analysed":
    return _Analysed(code)


class _Analysed:
    def __init__(self, code: CodeType) -> None:
        self._every = list(dis.get_instructions(code))
        self._offsets = [one.offset for one in self._every]
        self._lines = _lines(code, self._offsets)
        self._reads: list[set[str]] = []
        self._binds: list[set[str]] = []
        for one in self._every:
            reads, binds = set[str](), set[str]()
            for access, name in _names(one):
                if access != "LOAD":
                    binds.add(name)
                elif name not in binds:
                    reads.add(name)
            self._reads.append(reads)
            self._binds.append(binds)
        after = [self._after(i) for i in range(len(self._every))]
        self._live = self._flow(after)
        # What functions defined here read stays alive, and what handlers do: an exception may come anywhere.
        kept = {*code.co_cellvars, *code.co_freevars}
        if not code.co_flags & _FUNCTION:
            kept |= {name for inner in _inside(code) for name in inner.co_names}
        reached = _reached(after)
        kept |= {name for i, names in enumerate(self._reads) if i not in reached for name in names}
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        self._names = {*arguments, *(name for names in self._binds for name in names)} - kept

    def dead(self, offset: int) -> tuple[tuple[str, int], ...]:
        first = self._index(offset)
        while first and not _ENDS.search(self._every[first - 1].opname):
            first -= 1
        names = sorted(self._names - self._live[first])
        return tuple((name, line) for name in names if (line := self._last_use(name, first)))

    def _last_use(self, name: str, before: int) -> int:
        """The line that reads it last before an instruction, else in a loop's later part, else where it is bound."""
        for accesses in (self._reads, self._binds):
            found = [i for i, names in enumerate(accesses) if name in names]
            if found:
                return self._lines[max((i for i in found if i < before), default=found[-1])]
        return 0

    def _index(self, offset: int) -> int:
        return max(0, bisect_right(self._offsets, offset) - 1)

    def _after(self, index: int) -> list[int]:
        one = self._every[index]
        after = [self._index(one.argval)] if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs else []
        if index + 1 < len(self._every) and not _LEAVES.search(one.opname):
            after.append(index + 1)
        return after

    def _flow(self, after: list[list[int]]) -> list[set[str]]:
        """The names that are live before each instruction."""
        live: list[set[str]] = [set() for _ in after]
        changed = True
        while changed:
            changed = False
            for i in reversed(range(len(after))):
                behind = {name for j in after[i] for name in live[j]}
                now = (behind - self._binds[i]) | self._reads[i]
                if now != live[i]:
                    live[i], changed = now, True
        return live


def _names(one: dis.Instruction) -> Iterator[tuple[str, str]]:
    """What it does with names; newer Pythons have instructions of two."""
    accesses = _ACCESS.findall(one.opname)
    return zip(accesses, one.argval if isinstance(one.argval, tuple) else (one.argval,), strict=False)


def _lines(code: CodeType, offsets: list[int]) -> list[int]:
    lines: dict[int, int] = {}
    for begin, end, line in code.co_lines():
        for i in range(bisect_right(offsets, begin - 1), bisect_right(offsets, end - 1)):
            lines[i] = line or 0
    return [lines.get(i, 0) for i in range(len(offsets))]


def _inside(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _inside(one)


def _reached(after: list[list[int]]) -> set[int]:
    reached, waiting = set[int](), [0]
    while waiting:
        i = waiting.pop()
        if i not in reached:
            reached.add(i)
            waiting += after[i]
    return reached
