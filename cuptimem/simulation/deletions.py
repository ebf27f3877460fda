"""Where a `del` of a variable changes nothing in a program but when it lets go of what the variable holds.

The source is compiled with a probe behind every statement, so that the compiler itself says where statements end. At a
probe a name can be deleted if it is bound on every way there, and no way from there reads it before it is bound again.
Ways through loops, handlers of exceptions, `with` and `finally` are those of the bytecode and its table of exceptions.
Of several such places, those are kept that go together: none deletes what another one has deleted.
"""

import ast
import dis
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import decode_source
from types import CodeType
from typing import Any, NamedTuple

_ACCESS = re.compile(r"(LOAD|STORE|DELETE)_(FAST|NAME|GLOBAL)")
_LEAVES = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"})
_LEAVES |= {"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"}
_FUNCTION, _VARIADIC, _KEYWORDS = 0x1, 0x4, 0x8  # of co_flags
_PROBE = "<{}>"  # no name of a program
_READ_ALL = frozenset(
    {"locals", "globals", "vars", "dir", "eval", "exec"}
)  # called by name: model.eval() is another one
_READ_OUTSIDE = frozenset({"_getframe", "currentframe", "data_ptr", "__main__"})  # also as attributes
# Of PyTorch and contextlib: their __exit__ lets exceptions through. Behind any other `with` the program may go on.
_RAISING = frozenset(
    {"autocast", "detect_anomaly", "device", "enable_grad", "inference_mode", "no_grad", "nullcontext"}
)
_RAISING |= {"record_function", "save_on_cpu", "saved_tensors_hooks", "sdpa_kernel", "set_detect_anomaly"}
_RAISING |= {"set_grad_enabled", "stream"}
_INNER_FIRST = (ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While)

Key = tuple[str, int]  # qualified name and first line of a function, or "<module>"


@dataclass(frozen=True)
class Place:
    """Behind a statement that begins at a line, which no other place has."""

    line: int
    body: list[ast.stmt]
    statement: ast.stmt

    def names(self) -> set[str]:
        """That the statement reads or binds."""
        found = set()
        for node in ast.walk(self.statement):
            for field in ("id", "name", "rest", "asname"):
                if isinstance(name := getattr(node, field, None), str):
                    found.add(name)
        return found


class _Known(NamedTuple):
    """Of a place: its line, the names of its statement, and the lines of the block that the statement is in."""

    line: int
    names: set[str]
    first: int
    last: int


class Deletions:
    """Of one file's source. is_main: it is the script, whose variables no other module reads.

    Raises SyntaxError or ValueError for what is no source.
    """

    def __init__(self, source: str | bytes, file: str, is_main: bool) -> None:
        self._plain = _codes(compile(source, file, "exec", dont_inherit=True))
        tree = ast.parse(source, file)
        defined = {one for node in ast.walk(tree) for one in _defined(node)}
        places = list(_places(tree.body, _lines(source)))
        known = [
            _Known(place.line, place.names(), place.body[0].lineno, place.body[-1].end_lineno or 0) for place in places
        ]
        for number, place in enumerate(places):
            _insert(place, _PROBE.format(number))
        raising = _raising_lines(tree)
        module = compile(tree, file, "exec", dont_inherit=True)
        read_inside = _read_inside(module) if is_main else None
        self._functions: dict[tuple[str, int], Callable[[], _Function]] = {}  # few of a file's are asked for
        for key, code in _codes(module).items():
            if code.co_flags & _FUNCTION:
                self._functions[key] = cache(partial(_Function, code, known, raising, set()))
            elif key[0] == "<module>" and read_inside is not None:
                self._functions[key] = cache(partial(_Function, code, known, raising, read_inside | defined))

    def all(self) -> Iterator[tuple[str, int]]:
        """The names with the lines of the statements behind which they can be deleted, all of them at once."""
        for one in self._functions.values():
            yield from one().chosen()

    def deleted(self, code: CodeType, offset: int) -> tuple[tuple[str, int], ...]:
        """The names that would be deleted at an instruction of the source as it is, each with the line of its `del`."""
        key = _key(code)
        if key not in self._functions or self._plain.get(key) != code:
            return ()
        before = [one for one in dis.get_instructions(code) if one.offset <= max(0, offset)]
        one = before[-1]  # the offset may be in the cache behind it
        return self._functions[key]().deleted(one)

    def is_read_behind(self, code: CodeType, offset: int, name: str) -> bool:
        """Whether a way from behind an instruction may read the name before it is bound again, or deletes it. True
        where that is not known."""
        key = _key(code)
        if key not in self._functions or self._plain.get(key) != code:
            return True
        before = [one for one in dis.get_instructions(code) if one.offset <= max(0, offset)]
        return self._functions[key]().is_read_behind(before[-1], name)


def delete(tree: ast.Module, source: str | bytes, places: Iterable[tuple[str, int]]) -> int:
    """Puts a `del` of each name behind the statement of its line, and counts them."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, line in places:
        names[line].append(name)
    count = 0
    for place in list(_places(tree.body, _lines(source))):
        for name in names.pop(place.line, ()):
            _insert(place, name)
            count += 1
    return count


def _insert(place: Place, name: str) -> None:
    new = ast.Delete([ast.copy_location(ast.Name(name, ast.Del()), place.statement)])
    index = next(i for i, one in enumerate(place.body) if one is place.statement)
    place.body.insert(index + 1, ast.copy_location(new, place.statement))


def _places(body: list[ast.stmt], lines: list[str]) -> Iterator[Place]:
    """The preferred of nested ones first: behind an `if`, which reads a name on one of its branches, but in a loop and
    in a `with`. Not on a line with another statement or an `else:`, which "behind this line" would not tell apart."""
    first = max(
        (i for i, one in enumerate(body) if isinstance(one, ast.ImportFrom) and one.module == "__future__"), default=-1
    )
    for i, one in enumerate(list(body)):
        following = body[i + 1].lineno if i + 1 < len(body) else 0
        indent = lines[one.lineno - 1].encode()[: one.col_offset]
        is_alone = not indent.strip() and following != (one.end_lineno or one.lineno)
        is_docstring = i == 0 and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
        here = [Place(one.lineno, body, one)] if is_alone and i > first and not is_docstring else []
        inside = list(_inside(one, lines))
        yield from (*inside, *here) if isinstance(one, _INNER_FIRST) else (*here, *inside)


def _inside(one: ast.stmt, lines: list[str]) -> Iterator[Place]:
    if isinstance(one, ast.ClassDef):  # its variables are read as attributes
        for node in one.body:
            yield from _inside(node, lines)
        return
    for field in ("body", "orelse", "finalbody"):
        inner = getattr(one, field, None) or []
        is_elif = field == "orelse" and isinstance(one, ast.If) and len(inner) == 1 and isinstance(inner[0], ast.If)
        if is_elif and inner[0].col_offset == one.col_offset:
            yield from _inside(inner[0], lines)
        else:
            yield from _places(inner, lines)
    for other in (*getattr(one, "handlers", ()), *getattr(one, "cases", ())):
        yield from _places(other.body, lines)


def _lines(source: str | bytes) -> list[str]:
    return (source if isinstance(source, str) else decode_source(source)).split("\n")


def _raising_lines(tree: ast.Module) -> set[int]:
    """Of each `with` and of its parts, where these do not end exceptions."""
    lines: dict[bool, set[int]] = {False: set(), True: set()}
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            calls = [one.context_expr.func for one in node.items if isinstance(one.context_expr, ast.Call)]
            names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls}
            is_known = isinstance(node, ast.With) and len(calls) == len(node.items) and names <= _RAISING
            lines[is_known] |= {node.lineno, *(one.context_expr.lineno for one in node.items)}
    return lines[True] - lines[False]


def _defined(node: ast.AST) -> Iterator[str]:
    """Names of modules, functions and classes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((one.asname or one.name).partition(".")[0] for one in node.names)


def _key(code: CodeType) -> Key:
    return code.co_qualname, code.co_firstlineno


def _codes(module: CodeType) -> dict[Key, CodeType]:
    """Without those that have a line and a name with another one."""
    found: dict[Key, list[CodeType]] = defaultdict(list)
    waiting = [module]
    while waiting:
        code = waiting.pop()
        found[_key(code)].append(code)
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
    return {key: codes[0] for key, codes in found.items() if len(codes) == 1}


def _read_inside(module: CodeType) -> set[str] | None:
    """Names that functions and classes of a module read or bind; None where these may be any."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        code = waiting.pop()
        if _reads_all(code) or {"sys", "modules"} <= {*code.co_names}:
            return None
        waiting += [one for one in code.co_consts if isinstance(one, CodeType)]
        if code is not module:
            every = dis.get_instructions(code)
            found |= {one.argval for one in every if re.search("_(NAME|GLOBALS?)$", one.opname)}
    return found


def _reads_all(code: CodeType) -> bool:
    if _READ_OUTSIDE & {*code.co_names}:
        return True
    called = ("LOAD_GLOBAL", "LOAD_NAME")
    return any(one.opname in called and one.argval in _READ_ALL for one in dis.get_instructions(code))


class _Function:
    """Variables are bits of masks, one for each."""

    def __init__(self, code: CodeType, places: list[_Known], raising: set[int], kept: set[str]) -> None:
        self._every = list(dis.get_instructions(code))
        self._places = places
        self._probes: dict[int, list[int]] = defaultdict(list)  # of a place: its instructions, two of a `finally`
        self._bits: dict[str, int] = {}
        self._kept = {*code.co_cellvars, *code.co_freevars, *kept}
        self._kept |= {one.argval for one in self._every if one.opname == "LOAD_FAST_AND_CLEAR"}  # of a comprehension
        self._kept |= {*code.co_varnames[: "__class__" in code.co_freevars]}  # super() finds self in the frame
        count = len(self._every)
        self._reads, self._binds, self._deletes = [0] * count, [0] * count, [0] * count
        for i, one in enumerate(self._every):
            self._take(i, one, is_function=bool(code.co_flags & _FUNCTION))
        self._follow(code, raising)
        self._live = self._flow_back()
        arguments = code.co_argcount + code.co_kwonlyargcount
        arguments += bool(code.co_flags & _VARIADIC) + bool(code.co_flags & _KEYWORDS)
        self._entry = sum(self._bits.get(name, 0) for name in {*code.co_varnames[:arguments]})
        self._at = defaultdict[object, list[int]](list)
        for i, one in enumerate(self._every):
            self._at[_position(one)].append(i)
        self._reads_all = _reads_all(code)
        self._chosen = {} if self._reads_all else self._choose()
        kills = self._kills(self._chosen)
        # Where a variable has been deleted unless an exception came, what it holds is taken as deleted.
        ways = self._forward(kills, operator.or_, raises=False), self._forward(kills, operator.or_)
        self._bound = [plain if plain is not None else raised for plain, raised in zip(*ways, strict=True)]

    def chosen(self) -> Iterator[tuple[str, int]]:
        for name, numbers in self._chosen.items():
            for number in numbers:
                yield name, self._places[number].line

    def deleted(self, one: dis.Instruction) -> tuple[tuple[str, int], ...]:
        at = self._at.get(_position(one), [])
        if not at:
            return ()
        bound = 0
        for i in at:
            bound |= self._bound[i] or 0
        names = (name for name in self._chosen if not bound & self._bits[name])
        return tuple((name, line) for name in names if (line := self._nearest(name, at)))

    def is_read_behind(self, one: dis.Instruction, name: str) -> bool:
        at = self._at.get(_position(one), [])
        if self._reads_all or not at or name not in self._bits:
            return True
        return any(self._live[j] & self._bits[name] for i in at for j in (*self._next[i], *self._raised[i]))

    def _take(self, i: int, one: dis.Instruction, is_function: bool) -> None:
        """What an instruction does with names; newer Pythons have instructions of two."""
        accesses = _ACCESS.findall(one.opname)
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if len(accesses) == 1 and len(names) == 1 and accesses[0][0] == "DELETE" and names[0].startswith("<"):
            self._probes[int(names[0][1:-1])].append(i)
            return
        for (access, kind), name in zip(accesses, names, strict=False):
            if name in self._kept or is_function is not (kind == "FAST"):
                continue
            bit = self._bits.setdefault(name, 1 << len(self._bits))
            if access == "STORE":
                self._binds[i] |= bit
            else:
                self._reads[i] |= bit & ~self._binds[i]
                self._deletes[i] |= bit if access == "DELETE" else 0

    def _follow(self, code: CodeType, raising: set[int]) -> None:
        """Which instructions come next, and which if an exception comes. Binding a name raises none."""
        index = {one.offset: i for i, one in enumerate(self._every)}
        self._next: list[list[int]] = []
        for i, one in enumerate(self._every):
            after = [index[one.argval]] if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs else []
            self._next.append(after + [i + 1] * (i + 1 < len(self._every) and one.opname not in _LEAVES))
        for i, one in enumerate(self._every):
            if one.opname == "WITH_EXCEPT_START" and (one.positions or dis.Positions()).lineno in raising:
                jump = next(j for j in range(i, len(self._every)) if self._every[j].opname.endswith("IF_TRUE"))
                self._next[jump] = [jump + 1]
        self._raised: list[list[int]] = [[] for _ in self._every]
        table: Any = dis.Bytecode(code)
        for entry in table.exception_entries:
            for i, one in enumerate(self._every):
                if entry.start <= one.offset < entry.end:
                    self._raised[i].append(index[entry.target])
        for i, one in enumerate(self._every):
            if self._binds[i] and one.opname.startswith("STORE"):
                self._raised[i] = []
        for probes in self._probes.values():
            for i in probes:
                self._raised[i] = []

    def _flow_back(self) -> list[int]:
        """Names that are read, before each instruction. The program's own `del` reads what it deletes."""
        live = [0] * len(self._every)
        changed = True
        while changed:
            changed = False
            for i in reversed(range(len(live))):
                now = 0
                for j in self._next[i]:
                    now |= live[j]
                now = (now & ~(self._binds[i] | self._deletes[i])) | self._reads[i]
                for j in self._raised[i]:
                    now |= live[j]
                if now != live[i]:
                    live[i], changed = now, True
        return live

    def _forward(
        self, kills: Mapping[int, int], join: Callable[[int, int], int], raises: bool = True
    ) -> list[int | None]:
        """Names that are bound before each instruction, on every way (and) or on any (or); None: no way leads there."""
        before: list[int | None] = [None] * len(self._every)
        before[0] = self._entry
        waiting = [0]
        while waiting:
            i = waiting.pop()
            state = before[i] or 0
            behind = (state & ~(self._deletes[i] | kills.get(i, 0))) | self._binds[i]
            ways = [(j, behind) for j in self._next[i]]
            ways += [(j, join(state, behind)) for j in self._raised[i] if raises]
            for j, comes in ways:
                old = before[j]
                new = comes if old is None else join(old, comes)
                if new != old:
                    before[j] = new
                    waiting.append(j)
        return before

    def _kills(self, chosen: Mapping[str, Iterable[int]]) -> dict[int, int]:
        kills: dict[int, int] = defaultdict(int)
        for name, numbers in chosen.items():
            for number in numbers:
                for i in self._probes[number]:
                    kills[i] |= self._bits[name]
        return kills

    def _choose(self) -> dict[str, list[int]]:
        """Of each name the places that go together."""
        live, bound = self._live, self._forward({}, operator.and_)
        candidates: dict[str, list[int]] = defaultdict(list)
        for number in sorted(self._probes):
            probes = self._probes[number]
            for name in sorted(self._places[number].names & self._bits.keys()):
                bit = self._bits[name]
                if all((bound[i] or 0) & bit and not live[i] & bit for i in probes):
                    candidates[name].append(number)
        clashing = self._clashing(candidates)
        return {
            name: self._together(name, numbers) if name in clashing else numbers for name, numbers in candidates.items()
        }

    def _together(self, name: str, numbers: list[int]) -> list[int]:
        taken: list[int] = []
        for number in numbers:
            if not self._clashing({name: [*taken, number]}):
                taken.append(number)
        return taken

    def _clashing(self, chosen: Mapping[str, list[int]]) -> set[str]:
        """The names that are not bound any more where they are to be deleted."""
        bound = self._forward(self._kills(chosen), operator.and_)
        probes = ((name, i) for name, numbers in chosen.items() for number in numbers for i in self._probes[number])
        return {name for name, i in probes if not (bound[i] or 0) & self._bits[name]}

    def _nearest(self, name: str, at: list[int]) -> int:
        """The line of the place that deletes it nearest before an instruction, first of those whose block this is in;
        0: nothing has bound it there."""
        numbers = {i: number for number in self._chosen[name] for i in self._probes[number]}
        seen, waiting, found = set(at), list(at), list[_Known]()
        for i in waiting:  # grows
            for j in self._before[i]:
                if j in numbers:
                    found.append(self._places[numbers[j]])
                elif j not in seen and not self._binds[j] & self._bits[name]:
                    seen.add(j)
                    waiting.append(j)
        here = (self._every[at[0]].positions or dis.Positions()).lineno or 0
        return min(found, key=lambda one: not one.first <= here <= one.last).line if found else 0

    @property
    def _before(self) -> list[list[int]]:
        if not hasattr(self, "_came"):
            self._came: list[list[int]] = [[] for _ in self._every]
            for i in range(len(self._every)):
                for j in (*self._next[i], *self._raised[i]):
                    self._came[j].append(i)
        return self._came


def _position(one: dis.Instruction) -> object:
    """The same in the source with probes and without."""
    return one.opname, one.positions
