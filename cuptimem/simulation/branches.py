"""Whether a branch that the run did not take may keep what a variable holds, on the way to a line that reads it."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from cuptimem.simulation.places import source

_HARMLESS = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "size", "dim", "numel", "stride"})
_EXCLUSIVE = (ast.If, ast.IfExp, ast.Match)
_BRANCHES = (*_EXCLUSIVE, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.BoolOp, ast.comprehension)
_PLAIN = frozenset({"test", "iter", "subject", "target"})  # of these: what runs each time
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_Way = tuple[tuple[ast.AST, str], ...]  # the branches around it
_Found = tuple[ast.AST, ast.AST, ast.stmt | None, _Way]  # a node, what it stands in, its statement


@lru_cache(None)
def is_read_before(code: CodeType, line: int, name: str) -> bool:
    """Of a running function; also True where its source is not known. What every way to the line does, the run did."""
    nodes = _function(code)
    here = next((one for one in reversed(nodes) if one[2] is not None and one[2].lineno <= line <= _end(one[2])), None)
    if here is None or here[2] is None:
        return True
    statement, way = here[2], _of_statement(nodes, here[2])
    loop = max((i + 1 for i, (one, _) in enumerate(way) if isinstance(one, _LOOPS)), default=0)
    bound = 0  # the line from which on the variable holds it
    for node, _, of, around in nodes:
        is_store = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if is_store and of is not None and _end(of) < statement.lineno and around == way[: len(around)]:
            bound = max(bound, _end(of)) if len(around) >= loop else bound
    for node, parent, of, around in nodes:
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        is_between = of is not None and bound < of.lineno and (of.lineno < statement.lineno or (loop and not bound))
        if of is statement or not is_between or around == way[: len(around)] or _is_harmless(parent, of, name):
            continue
        if not _is_other(around, way) and not _leaves(around, way):
            return True
    return False


@lru_cache(None)
def _function(code: CodeType) -> tuple[_Found, ...]:
    try:
        tree = ast.parse(source(code.co_filename))
    except (SyntaxError, ValueError):
        return ()
    functions = (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    for node in functions:
        first = {node.lineno, *(one.lineno for one in node.decorator_list)}
        if node.name == code.co_name and code.co_firstlineno in first:
            return tuple(_inside(node, None, ()))
    return tuple(_inside(tree, None, ())) if code.co_name == "<module>" else ()


def _inside(node: ast.AST, statement: ast.stmt | None, way: _Way) -> Iterator[_Found]:
    for field, value in ast.iter_fields(node):
        for i, one in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(one, ast.AST):
                continue
            is_first = isinstance(node, ast.BoolOp) and i == 0
            is_branch = isinstance(node, _BRANCHES) and field not in _PLAIN and not is_first
            part = f"{field}{i}" if field in ("cases", "handlers", "values") else field
            inner = (*way, (node, part)) if is_branch else way
            of = one if isinstance(one, ast.stmt) else statement
            yield one, node, of, inner
            yield from _inside(one, of, inner)


def _of_statement(nodes: tuple[_Found, ...], statement: ast.stmt) -> _Way:
    return next(way for node, _, _, way in nodes if node is statement)


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _is_harmless(parent: ast.AST, statement: ast.stmt | None, name: str) -> bool:
    """It asks for a shape, or compares with None, or binds the variable again."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in _HARMLESS
    if isinstance(parent, ast.Compare):
        return all(isinstance(one, ast.Is | ast.IsNot) for one in parent.ops)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name


def _is_other(one: _Way, way: _Way) -> bool:
    """Whether no way leads through both."""
    for (node, field), (other, of_other) in zip(one, way, strict=False):
        if node is not other or field != of_other:
            return node is other and isinstance(node, _EXCLUSIVE)
    return False


def _leaves(one: _Way, way: _Way) -> bool:
    """Whether the function ends at the end of a branch that does not lead to the line."""
    for node, field in one[len(_common(one, way)) :]:
        body = getattr(node, field, None)
        if isinstance(body, list) and body and isinstance(body[-1], ast.Return | ast.Raise):
            return True
    return False


def _common(one: _Way, way: _Way) -> _Way:
    count = 0
    while count < min(len(one), len(way)) and one[count] == way[count]:
        count += 1
    return one[:count]
