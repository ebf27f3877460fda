"""Whether no code of the program can ask for the gradient of what a line made: by its source.

What a few steps ran does not tell: the branch that adds a loss may come later. So every use of the result's variable
must be one that has no gradient: detach(), item(), shape, a print of these.
"""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from cuptimem.simulation.places import tree

_DROPS = frozenset({"detach", "item", "tolist", "argmax", "data", "shape", "size", "dim", "numel", "dtype", "device"})
_PLAIN = frozenset({"float", "int", "bool", "len", "print", "str"})
# Of a tensor, or of a module of torch: methods and functions that compute another tensor, and keep neither.
_COMPUTE = re.compile(
    r"abs|add|argsort|chunk|clamp|cos|cosine_similarity|cross_entropy|div|exp|expand|flatten|float|gather|l1_loss|log"
    r"|log_softmax|logsumexp|lerp|matmul|max|maximum|mean|min|minimum|mse_loss|mul|neg|norm|normalize|permute|pow|relu"
    r"|repeat|reshape|rsqrt|sigmoid|sin|softmax|sort|sqrt|square|squeeze|stack|std|sub|sum|tanh|topk|transpose"
    r"|unsqueeze|var|view|where"
)
_Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


def drops(place: tuple[tuple[str, str, int], ...]) -> str | None:
    """place: files, functions and lines that lead to an operator, the innermost first. The variables that hold its
    result and what is computed of it, with commas between; "": none does. None: the gradient may be asked for, or that
    is not known."""
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
    if statement is not None and any(isinstance(one, ast.NamedExpr) for one in ast.walk(statement)):
        return None
    if isinstance(statement, ast.Return):
        return "" if statement.value is not None and _is_plain(statement.value) else _RETURNED
    if isinstance(statement, ast.Expr):
        call = statement.value
        if isinstance(call, ast.Call) and any(isinstance(one, ast.Call) for one in ast.walk(call.func)):
            return None  # what the inner call was handed may be in its result
        used = [*call.args, *(one.value for one in call.keywords)] if isinstance(call, ast.Call) else [call]
        return "" if all(_is_plain(one) for one in used) else None
    if isinstance(statement, ast.AugAssign):
        return "" if _is_plain(statement.value) else None
    if module is None or scope is None or not isinstance(statement, ast.Assign):
        return None
    if _is_plain(statement.value):
        return ""
    known: dict[int, list[str]] = {}
    if not _names(statement) or _is_read(module, scope, statement, known):
        return None
    return ",".join(dict.fromkeys(name for names in known.values() for name in names))


def _names(statement: ast.stmt | None) -> list[str]:
    """The variables that it binds, if it binds nothing else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
        return []
    target = statement.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    names = [one.id for one in parts if isinstance(one, ast.Name)]
    return names if len(names) == len(parts) else []


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


def _is_read(module: ast.Module, scope: _Scope, bound: ast.stmt, known: dict[int, list[str]]) -> bool:
    """Whether a use of what this binds may have a gradient. known: bindings that are being looked at, with their names:
    what flows in a circle of these is used nowhere else."""
    known[id(bound)] = _names(bound)
    return any(_is_name_read(module, scope, bound, name, known) for name in _names(bound))


def _is_name_read(module: ast.Module, scope: _Scope, bound: ast.stmt, name: str, known: dict[int, list[str]]) -> bool:
    if any(isinstance(one, ast.Global | ast.Nonlocal) and name in one.names for one in ast.walk(scope)):
        return True
    uses = {id(one.value) for one in ast.walk(scope) if isinstance(one, ast.Attribute) and one.attr in _DROPS}
    for node in _reached(scope, bound, name):
        changed = {id(one.target) for one in ast.walk(node) if isinstance(one, ast.AugAssign)}
        for one in ast.walk(node):
            if not isinstance(one, ast.Name) or one.id != name or id(one) in uses or _is_over(scope, bound, one):
                continue
            if id(one) in changed or (isinstance(one.ctx, ast.Load) and not _goes_on(module, scope, one, known)):
                return True
    return False


def _is_over(scope: _Scope, bound: ast.stmt, use: ast.Name) -> bool:
    """Whether the program has left the use behind when it comes to the binding: no loop has both, and no function."""
    both = (one for one in ast.walk(scope) if isinstance(one, _LOOPS) and _has(one, use) and _has(one, bound))
    inner = (one for one in ast.walk(scope) if isinstance(one, _FUNCTIONS) and one is not scope and _has(one, use))
    return use.lineno < bound.lineno and not any(both) and not any(inner)


def _goes_on(module: ast.Module, scope: _Scope, use: ast.Name, known: dict[int, list[str]]) -> bool:
    """Whether the use but computes a number for the host, or the value of another variable, of which no use may have a
    gradient either."""
    plain = (one for call in _plain_calls(scope) for one in call.args if _has(one, use))
    if any(_computes(module, one, use) for one in plain):
        return True
    around = [one for one in ast.walk(scope) if isinstance(one, ast.stmt) and _has(one, use)]
    statement = around[-1]  # outer ones come first
    if any(isinstance(one, _FUNCTIONS) and one is not scope and _has(one, use) for one in ast.walk(scope)):
        return False
    if not isinstance(statement, ast.Assign) or len(_names(statement)) != 1:
        return False
    if not _computes(module, statement.value, use):
        return False
    return id(statement) in known or not _is_read(module, scope, statement, known)


def _spans(outer: ast.expr | ast.stmt, inner: ast.expr | ast.stmt) -> bool:
    return outer.lineno <= inner.lineno <= (outer.end_lineno or outer.lineno)


def _has(outer: ast.AST, inner: ast.expr | ast.stmt) -> bool:
    # Decorators stand above the line of what they decorate.
    if isinstance(outer, ast.expr | ast.stmt) and not isinstance(outer, _FUNCTIONS) and not _spans(outer, inner):
        return False
    return any(one is inner for one in ast.walk(outer))


def _computes(module: ast.Module, value: ast.AST, use: ast.Name) -> bool:
    """Whether nothing on the way from the use to the value can keep it, or run its graph."""
    if value is use:
        return True
    way = next(one for one in ast.iter_child_nodes(value) if _has(one, use))
    if isinstance(value, ast.BinOp | ast.UnaryOp):
        return _computes(module, way, use)
    if isinstance(value, ast.Subscript):
        return way is value.value and _computes(module, way, use)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    if not _COMPUTE.fullmatch(value.func.attr):
        return False
    if way is value.func:
        return _computes(module, value.func.value, use)
    return isinstance(way, ast.expr) and _is_torch(module, value.func.value) and _computes(module, way, use)


def _is_torch(module: ast.Module, called: ast.expr) -> bool:
    """Whether a name with its attributes is a module of torch's, as the file imports it."""
    while isinstance(called, ast.Attribute):
        called = called.value
    aliases: set[str] = set()
    for one in ast.walk(module):
        if isinstance(one, ast.Import):
            names = (other for other in one.names if other.name.split(".")[0] == "torch")
            aliases |= {other.asname or "torch" for other in names}
        elif isinstance(one, ast.ImportFrom) and (one.module or "").split(".")[0] == "torch":
            aliases |= {other.asname or other.name for other in one.names}
    return isinstance(called, ast.Name) and called.id in aliases


def _reached(scope: _Scope, bound: ast.stmt, name: str) -> list[ast.AST]:
    """Where the value of a binding may be read: up to the next one of its name in the same suite, and in functions;
    anywhere, if the program may come to other places with it."""
    around = [one for one in ast.walk(scope) if _has(one, bound)]
    if any(isinstance(one, ast.Try | ast.TryStar) or (isinstance(one, ast.With) and _ends(one)) for one in around):
        return [scope]
    found: list[ast.AST] = []
    here: ast.stmt = bound
    while True:
        owner, suite = next((one, some) for one in around for some in _suites(one) if any(s is here for s in some))
        rest = suite[next(i for i, one in enumerate(suite) if one is here) + 1 :]
        end = next((i for i, one in enumerate(rest) if _binds(one, name)), None)
        if any(isinstance(one, ast.Break | ast.Continue) for some in rest[:end] for one in ast.walk(some)):
            return [scope]
        found += rest if end is None else rest[: end + 1]
        if end is not None:
            return [*found, *(one for one in ast.walk(scope) if isinstance(one, _FUNCTIONS) and one is not scope)]
        if not isinstance(owner, ast.With):
            return [scope]
        here = owner


def _suites(node: ast.AST) -> Iterator[list[ast.stmt]]:
    yield from (value for _, value in ast.iter_fields(node) if isinstance(value, list))


def _binds(statement: ast.stmt, name: str) -> bool:
    """Whether the name has another value behind it for certain."""
    if isinstance(statement, ast.With):
        return not _ends(statement) and any(_binds(one, name) for one in statement.body)
    return name in _names(statement)


def _ends(statement: ast.With) -> bool:
    """Whether it may end an exception: those of torch do not."""
    calls = (one.context_expr for one in statement.items)
    names = (ast.unparse(one.func) for one in calls if isinstance(one, ast.Call))
    return sum(name.startswith("torch.") for name in names) < len(statement.items)


_LOOPS = ast.For | ast.AsyncFor | ast.While
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


def _plain_calls(scope: _Scope) -> Iterator[ast.Call]:
    for one in ast.walk(scope):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id in _PLAIN:
            yield one
