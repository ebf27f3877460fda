"""The line that gives a batch its size: from the line that makes the batch's data back to the loop whose items these
are, by the program's source."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from cuptimem.report.stacks import Frame

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FOR = (ast.For, ast.AsyncFor)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_COUNTS = ("range", "trange", "count")  # their items are numbers, by which a slice is taken where it stands
_WITH_STEP = 3  # arguments of range(first, last, size)


def batch_line(frames: Iterable[Frame], sources: Mapping[str, str]) -> Frame | None:
    """frames: from the one that makes the data outwards. sources: texts by file. None: no other line is known.

    A loop gives it whose items the line reads, be it by way of other variables. Where a function reads what it was
    given, or its loop takes parts of a size that it was given, that may be a loop of a caller. Without one it is the
    line that calls what only returns or yields the data. What a library but PyTorch calls has no caller here.
    """
    best, returned = None, True
    for frame in frames:
        if frame.is_plumbing:
            continue
        found = None if frame.is_library else _find(sources.get(frame.file, ""), frame.line)
        if found is None:
            break
        if found.loop is not None or returned:
            best = _at(frame, found.loop or frame.line, sources[frame.file])
        returned = returned and found.returns
        if not found.asks_caller:
            break
    return best


@dataclass(frozen=True, slots=True)
class _Found:
    """Of a line: the line of its loop, if there is one; whether the caller gives the size, or has what it returns."""

    loop: int | None
    asks_caller: bool
    returns: bool = False


def _at(frame: Frame, line: int, source: str) -> Frame:
    return frame if line == frame.line else Frame(frame.file, frame.function, line, text=source.splitlines()[line - 1])


@lru_cache(None)
def _find(source: str, line: int) -> _Found | None:
    """None: the source is not known."""
    way = _way(source, line)
    if not way:
        return None
    inside = max((i for i, one in enumerate(way) if isinstance(one, _FUNCTIONS)), default=-1)
    function = way[inside] if inside >= 0 else None
    statement = way[-1]
    if statement is function:
        return _Found(None, False)
    given = _parameters(function)
    body = getattr(function, "body", ())
    known = _derived(given, body, statement)
    header = _header(statement)
    if isinstance(statement, _FOR):
        return _Found(statement.lineno, _is_given(statement.iter, known))
    read = _names(header)
    for part in (one for node in header for one in ast.walk(node) if isinstance(one, _COMPREHENSIONS)):
        if any(_items(one.target) & read and _divides(one.iter) for one in part.generators):
            return _Found(statement.lineno, False)
    for loop in reversed(way[inside + 1 : -1]):
        if not isinstance(loop, _FOR) or _counts(loop.iter):
            continue
        if read & _derived(_items(loop.target), loop.body, statement):
            return _Found(loop.lineno, _is_given(loop.iter, known))
    returns = isinstance(statement, ast.Return) or any(isinstance(one, ast.Yield) for one in _walk(header))
    return _Found(None, function is not None and (returns or bool(read & known)), returns)


def _way(source: str, line: int) -> tuple[ast.stmt, ...]:
    """The statements around a line, the outermost first; () where there is none, or no source."""
    try:
        body: Sequence[ast.stmt] = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    found: list[ast.stmt] = []
    while (around := next((one for one in body if one.lineno <= line <= (one.end_lineno or 0)), None)) is not None:
        found.append(around)
        parts = list(ast.iter_child_nodes(around))
        body = [one for one in parts if isinstance(one, ast.stmt)]
        body += [one for part in parts if isinstance(part, ast.ExceptHandler | ast.match_case) for one in part.body]
    return tuple(found)


def _header(statement: ast.stmt) -> list[ast.AST]:
    """Of a statement with a body what stands before that, else all of it."""
    return [one for one in ast.iter_child_nodes(statement) if not isinstance(one, ast.stmt | ast.ExceptHandler)]


def _walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    return (one for node in nodes for one in ast.walk(node))


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """Variables that are read."""
    return {one.id for one in _walk(nodes) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _items(target: ast.AST) -> set[str]:
    """Variables that are bound."""
    return {one.id for one in ast.walk(target) if isinstance(one, ast.Name)}


def _parameters(function: ast.stmt | None) -> set[str]:
    if not isinstance(function, _FUNCTIONS):
        return set()
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    return {one.arg for one in every if one is not None} - {"self", "cls"}


def _derived(names: set[str], body: Sequence[ast.stmt], before: ast.stmt) -> set[str]:
    """These variables, and those that statements of the body bind to something of them, up to a statement."""
    found = set(names)
    for one in sorted((node for node in _walk(body) if isinstance(node, ast.stmt)), key=lambda one: one.lineno):
        if one.lineno >= before.lineno:
            break
        header = _header(one)
        if _names(header) & found:
            found |= {
                node.id for node in _walk(header) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
    return found


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def _counts(iterated: ast.expr) -> bool:
    """Whether the items are numbers one after the other: of no batch, or of one whose line takes a slice."""
    calls = [one for one in ast.walk(iterated) if isinstance(one, ast.Call) and _called(one) in _COUNTS]
    return any(len(one.args) < _WITH_STEP for one in calls)


def _divides(iterated: ast.expr) -> bool:
    """Whether a call makes the items, as x.split(size) does; those of a variable may be parts of one batch."""
    return any(isinstance(one, ast.Call) for one in ast.walk(iterated)) and not _counts(iterated)


def _is_given(iterated: ast.expr, given: set[str]) -> bool:
    """Whether the size of the parts is the caller's: x.split(size), range(0, n, size)."""
    sized = (one for one in ast.walk(iterated) if isinstance(one, ast.Call) and _names(one.args[-1:]) & given)
    return any(_called(one) == "range" or _is_method(one.func) for one in sized)


def _is_method(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", "") != "itertools"
