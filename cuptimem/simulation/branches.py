"""Whether a branch that the run did not take may keep what a variable holds, on the way to a line that reads it."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType

from cuptimem.simulation.places import tree

_HARMLESS = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "size", "dim", "numel", "stride"})
_EXCLUSIVE = (ast.If, ast.IfExp, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_OTHERS = (ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.BoolOp, ast.Assert)
_BRANCHES = (*_EXCLUSIVE, *_FUNCTIONS, *_COMPREHENSIONS, *_OTHERS)
_NAMESPACES = frozenset({"locals", "vars", "eval", "exec"})
_PLAIN = frozenset({"test", "iter", "subject", "target"})  # of these: what runs each time
_LOOPS = (ast.For, ast.AsyncFor, ast.While)

_Way = tuple[tuple[ast.AST, str], ...]  # the branches around it
_Found = tuple[ast.AST, ast.AST, ast.stmt | None, _Way]  # a node, what it stands in, its statement


@lru_cache(None)
def is_read_before(code: CodeType, line: int, name: str) -> bool:
    """Of a running function; also True where its source is not known. What every way to the line does, the run did."""
    nodes = _function(code)
    around_line = [of for _, _, of, _ in nodes if of is not None and of.lineno <= line <= _end(of)]
    if not around_line or any(isinstance(one, ast.Name) and one.id in _NAMESPACES for one, _, _, _ in nodes):
        return True
    statement = max(around_line, key=lambda one: one.lineno)
    way = _of_statement(nodes, statement)
    renewed = _renewing(nodes, name)
    loop = max((i + 1 for i, (one, _) in enumerate(way) if isinstance(one, _LOOPS)), default=0)
    bound = 0  # the line from which on the variable holds it
    for node, _, of, around in nodes:
        is_store = isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        if is_store and of in renewed and _end(of) < statement.lineno and around == way[: len(around)]:
            bound = max(bound, _end(of)) if len(around) >= loop else bound
    for node, parent, of, around in nodes:
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        is_between = of is not None and bound < of.lineno and (of.lineno < statement.lineno or (loop and not bound))
        if not is_between or around == way[: len(around)] or _is_harmless(parent, of, name):
            continue
        is_exclusive = _is_other(around, way) and (bound or not loop)  # an earlier iteration may take the other way
        if not is_exclusive and not _leaves(around, way):
            return True
    return _is_read_beside(nodes, statement, name)


def _is_read_beside(nodes: tuple[_Found, ...], statement: ast.stmt, name: str) -> bool:
    """Whether a branch of the statement itself reads it, and with it another part."""
    names = ((node, around) for node, _, of, around in nodes if of is statement and isinstance(node, ast.Name))
    own = {around for node, around in names if node.id == name and isinstance(node.ctx, ast.Load)}
    return any(not _is_other(one, other) for one in own for other in own if one != other)


def _renewing(nodes: tuple[_Found, ...], name: str) -> set[ast.stmt]:
    """Statements behind which the variable holds another tensor than before: no `h += 1`, and no `h = h.float()`, which
    may give what it had."""
    found: set[ast.stmt] = set()
    for node, _, of, _ in nodes:
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) and of is not None:
            value = of.value if isinstance(of, ast.Assign) else None
            method = value.func if isinstance(value, ast.Call) else value
            own = method.value if isinstance(method, ast.Attribute) else method
            is_own = any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(own)) if own else False
            if not isinstance(of, ast.AugAssign) and (isinstance(value, ast.BinOp) or not is_own):
                found.add(of)
    return found


@lru_cache(None)
def _function(code: CodeType) -> tuple[_Found, ...]:
    node = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    try:
        return tuple(_inside(node, None, ())) if node is not None else ()
    except RecursionError:
        return ()


@lru_cache(None)
def _functions(file: str) -> dict[tuple[str, int], ast.AST]:
    """By their names and first lines."""
    if (module := tree(file)) is None:
        return {}
    functions = [one for one in ast.walk(module) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    firsts = ((one, line.lineno) for one in functions for line in (one, *one.decorator_list))
    return {("<module>", 1): module, **{(one.name, line): one for one, line in firsts}}


def _inside(node: ast.AST, statement: ast.stmt | None, way: _Way) -> Iterator[_Found]:
    for field, value in ast.iter_fields(node):
        for i, one in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(one, ast.AST):
                continue
            is_first = isinstance(node, ast.BoolOp) and i == 0
            is_chain = isinstance(node, ast.Compare) and len(node.ops) > 1 and i > 0
            is_branch = is_chain or (isinstance(node, _BRANCHES) and field not in _PLAIN and not is_first)
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
    """It asks for a shape, compares with None, or binds the variable to a sum or product: a call may keep it."""
    if isinstance(parent, ast.Attribute):
        return parent.attr in _HARMLESS
    if isinstance(parent, ast.Compare):
        return all(isinstance(one, ast.Is | ast.IsNot) for one in parent.ops)
    if not isinstance(statement, ast.Assign) or parent is not statement.value:
        return False
    target = statement.targets[0]
    return isinstance(parent, ast.BinOp | ast.UnaryOp) and isinstance(target, ast.Name) and target.id == name


def _is_other(one: _Way, way: _Way) -> bool:
    """Whether no way leads through both."""
    for (node, field), (other, of_other) in zip(one, way, strict=False):
        if node is not other or field != of_other:
            return node is other and isinstance(node, _EXCLUSIVE)
    return False


def _leaves(one: _Way, way: _Way) -> bool:
    """Whether the function ends at the end of a branch that does not lead to the line."""
    for node, field in one[len(_common(one, way)) :]:
        if isinstance(node, (*_LOOPS, ast.Try, ast.TryStar)):
            return False
        body = getattr(node, field, None)
        if isinstance(body, list) and body and isinstance(body[-1], ast.Return | ast.Raise):
            return not any(isinstance(inner, ast.Break | ast.Continue) for part in body for inner in ast.walk(part))
    return False


def _common(one: _Way, way: _Way) -> _Way:
    count = 0
    while count < min(len(one), len(way)) and one[count] == way[count]:
        count += 1
    return one[:count]
