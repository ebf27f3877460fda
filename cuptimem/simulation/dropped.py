"""Whether no code of the program can ask for the gradient of what a line made: by its source.

What a few steps ran does not tell: the branch that adds a loss may come later. So every use of the result's variable
must be one that has no gradient: detach(), item(), shape, a print of these.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache

from cuptimem.simulation.places import tree

_DROPS = frozenset({"detach", "item", "tolist", "argmax", "data", "shape", "size", "dim", "numel", "dtype", "device"})
_PLAIN = frozenset({"float", "int", "bool", "len", "print", "str"})
_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


def drops(place: tuple[tuple[str, str, int], ...]) -> str | None:
    """place: files, functions and lines that lead to an operator, the innermost first. The variable that holds its
    result; "": none does. None: the gradient may be asked for, or that is not known."""
    for file, _, line in place:
        found = _of_line(file, line)
        if found is not _RETURNED:
            return found
    return None


_RETURNED = "return"  # no name


@lru_cache(None)
def _of_line(file: str, line: int) -> str | None:
    module = tree(file)
    statement, scope = _statement(module, line) if module is not None else (None, None)
    if isinstance(statement, ast.Return):
        return "" if statement.value is not None and _is_plain(statement.value) else _RETURNED
    if isinstance(statement, ast.Expr):
        call = statement.value
        used = [*call.args, *(one.value for one in call.keywords)] if isinstance(call, ast.Call) else [call]
        return "" if all(_is_plain(one) for one in used) else None
    if isinstance(statement, ast.AugAssign):
        return "" if _is_plain(statement.value) else None
    if not isinstance(statement, ast.Assign) or scope is None:
        return None
    if _is_plain(statement.value):
        return ""
    target = statement.targets[0]
    if len(statement.targets) > 1 or not isinstance(target, ast.Name) or _is_read(scope, target.id):
        return None
    return target.id


def _statement(module: ast.Module, line: int) -> tuple[ast.stmt | None, _Scope]:
    """The innermost one that has the line, and what its variables belong to."""
    found: ast.stmt | None = None
    scope: _Scope = module
    for node in ast.walk(module):  # outer ones come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            found = node
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                scope = node
    return found, scope


def _is_plain(node: ast.expr) -> bool:
    """Whether its value has no gradient."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.Compare):
        return True
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id in _PLAIN:
            return True
        return isinstance(called, ast.Attribute) and (called.attr in _DROPS or _is_plain(called.value))
    if isinstance(node, ast.Attribute):
        return node.attr in _DROPS
    return isinstance(node, ast.BinOp) and _is_plain(node.left) and _is_plain(node.right)


def _is_read(scope: _Scope, name: str) -> bool:
    """Whether a use of the name may have a gradient."""
    uses = {id(one.value) for one in ast.walk(scope) if isinstance(one, ast.Attribute) and one.attr in _DROPS}
    uses |= {id(one) for call in _plain_calls(scope) for one in call.args}
    changed = {id(one.target) for one in ast.walk(scope) if isinstance(one, ast.AugAssign)}
    for one in ast.walk(scope):
        if isinstance(one, ast.Global | ast.Nonlocal) and name in one.names:
            return True
        if not isinstance(one, ast.Name) or one.id != name:
            continue
        if id(one) in changed or (isinstance(one.ctx, ast.Load) and id(one) not in uses):
            return True
    return False


def _plain_calls(scope: _Scope) -> Iterator[ast.Call]:
    for one in ast.walk(scope):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in _PLAIN:
            yield one
