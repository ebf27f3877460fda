"""Which names of a running loop live for one pass only: the next pass assigns them again before it reads them.

Names that a later pass reads (`hidden` in `out, hidden = rnn(x, hidden)`) keep what they refer to from step to step.
It is read from the code: live variables, as a compiler finds them, at the head of the innermost loop.
"""

from __future__ import annotations

import dis
import re
import types
from functools import lru_cache

_MOST = 8000  # instructions of a function; it takes about a microsecond for each
_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL)")
_NEVER_NEXT = frozenset(("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "RETURN_GENERATOR"))
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def of_one_pass(frame: types.FrameType) -> frozenset[str] | None:
    """The names that die with the pass of the innermost loop that this frame is in; None: it is in no loop."""
    return _of_place(frame.f_code, frame.f_lasti)


@lru_cache(64)  # a search in a later step finds it known
def _of_place(code: types.CodeType, at: int) -> frozenset[str] | None:
    if len(code.co_code) > 2 * _MOST:
        return None
    instructions = list(dis.get_instructions(code))
    loops = [
        (one.argval, one.offset)
        for one in instructions
        if "JUMP_BACKWARD" in one.opname and one.argval <= at <= one.offset
    ]
    if not loops:
        return None
    head, end = max(loops)
    assigned = {name for one in instructions if head <= one.offset <= end for kind, name in _accesses(one) if kind != 0}
    return frozenset(assigned - _live_at(instructions, head))


def _accesses(one: dis.Instruction) -> list[tuple[int, str]]:
    """0: read, 1: assigned or deleted, in their order. An instruction may have two."""
    kinds = _ACCESS.findall(one.opname)
    names = one.argval if isinstance(one.argval, tuple) else (one.argval,) * len(kinds)
    return [(int(kind != "LOAD"), name) for kind, name in zip(kinds, names, strict=False) if isinstance(name, str)]


def _live_at(instructions: list[dis.Instruction], head: int) -> set[str]:
    """The names whose values are read at or behind this offset before they are assigned."""
    place = {one.offset: index for index, one in enumerate(instructions)}
    live: list[frozenset[str]] = [frozenset()] * (len(instructions) + 1)
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            one = instructions[index]
            after = frozenset() if _leaves(one) else live[index + 1]
            if one.opcode in _JUMPS:
                after |= live[place.get(one.argval, len(instructions))]
            for kind, name in reversed(_accesses(one)):
                after = after | {name} if kind == 0 else after - {name}
            if after != live[index]:
                live[index] = after
                changed = True
    return set(live[place[head]])


def _leaves(one: dis.Instruction) -> bool:
    """Whether the next instruction does not follow."""
    is_jump = one.opname.startswith(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))
    return is_jump or one.opname in _NEVER_NEXT
