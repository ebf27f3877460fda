"""Which line puts what grows into its container: `losses.append(loss)`, in whatever function that stands.

Reads the program's source files when the recording ends, and runs none of the program's code. Silent where several
lines may be the one, where the container gets another name (a function of the program's takes it, `x = losses`), and of
a file that was written since the recording began.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import stat
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cuptimem import cell_names
from cuptimem.errors import own
from cuptimem.objects import near

_MOST_BYTES = 1 << 18  # of a file: parsing more takes too long
_MOST_FILES = 64
_PUTS = {
    *("append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault"),
    *("put", "put_nowait", "push", "__setitem__"),
}
_PUTS_INTO_FIRST = {"heappush", "heappushpop", "heapreplace", "insort", "insort_left", "insort_right"}
_ENTRIES = {"setdefault", "get", "__getitem__"}  # seen.setdefault(key, []).append(x) puts into seen
_NUMBERS = {"float", "int", "str", "bool", "len", "repr", "item", "tolist"}  # what such calls return is no tensor
_READERS = {  # functions that put nothing into what they are given
    *("len", "sum", "min", "max", "sorted", "enumerate", "zip", "print", "list", "tuple", "set", "iter", "any", "all"),
    *("map", "filter", "isinstance", "cat", "stack", "vstack", "concat", "concatenate", "array", "asarray", "tensor"),
    *("mean", "plot", "save", "dump", "dumps", "str", "repr", "reversed"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CONTAINER = re.compile(r"[\w.]+(?:\(maxlen=\d+\))?\[")  # list[0:36] of a path
_ATTRIBUTE = re.compile(r"\.([\w.]+) \((\w+)\)")
_HEAD = re.compile(r"([\w.]+)(?: \((\w+)\))?(?: in (?:(?:module |the )[\w.]+|(\w+)\(\)))?")


@dataclass(frozen=True, slots=True)
class _Wanted:
    name: str
    is_attribute: bool
    cls: str  # of the object whose attribute it is
    function: str  # whose variable it is; "": a module's


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands."""

    function: str = "<module>"  # qualified
    prefix: str = ""  # of qualified names
    cls: str = ""  # innermost
    variables: frozenset[str] = frozenset()  # of the function
    loops: bool = False  # inside a loop of that function


@dataclass(slots=True)
class _Found:
    """In all files together."""

    puts: set[tuple[str, int, str]] = field(default_factory=set)  # file, line, function
    escapes: bool = False
    others: set[str] = field(default_factory=set)  # names that stand for a part of it ...
    put_to: set[str] = field(default_factory=set)  # ... and names that something is put to


def find(path: str, files: Collection[str], since: float) -> str:
    """The line, as "train.py:30 in Trainer.log", for a holder's path; "" if it is not known.

    files: of the lines that make what is held. since: the time at which the recording began.
    """
    for wanted in reversed(_names(path)):
        found = _Found()
        pattern = rf"\b{re.escape(wanted.name)}\b"
        trees = {
            one: tree for one in (*files, *_files_of_program()) if (tree := _tree(one, pattern, since)) is not None
        }
        bases = _bases(trees.values())
        try:
            for file, tree in trees.items():
                _Reader(wanted, file, bases, found).read(tree, _Place())
        except own(RecursionError):  # an expression of thousands of operators
            return ""
        if found.escapes or found.others & found.put_to or len({put[:2] for put in found.puts}) > 1:
            return ""
        if found.puts:
            file, line, function = min(found.puts)
            return f"{Path(cell_names.namer()(file)).name}:{line} in {function}"
        if trees:  # the program has the name, and puts things there in a way that is not read here
            return ""
    return ""


def _names(path: str) -> list[_Wanted]:
    """The names on a path that lead straight to a container, the innermost last: what it holds was put there. None of a
    path that was cut, whose innermost one is not known."""
    steps = path.partition(" → .grad_fn")[0].split(" → ")
    head = _HEAD.fullmatch(steps[0])
    if head is None or "…" in steps or path.endswith("…"):
        return []
    owner, _, name = head[1].rpartition(".")
    cls = owner.rpartition(".")[2] if head[2] == "class" else head[2] or ""
    before: _Wanted | None = _Wanted(name, bool(owner), cls, head[3] or "")
    found = []
    for step in steps[1:]:
        attribute = _ATTRIBUTE.fullmatch(step)
        if attribute is None and before is not None and _CONTAINER.match(step):
            found.append(before)
        before = _Wanted(attribute[1].rpartition(".")[2], True, attribute[2], "") if attribute is not None else None
    return found


def _files_of_program() -> list[str]:
    spaces = (space for space, _ in near.own_modules()[:_MOST_FILES])
    return [file for space in spaces if type(file := space.get("__file__")) is str]


def _tree(file: str, pattern: str, since: float) -> ast.Module | None:
    source = _source(file, since)
    if not re.search(pattern, source):
        return None
    try:
        return ast.parse(source)
    except own(SyntaxError, ValueError, RecursionError, MemoryError):  # a notebook's cell with a magic
        return None


def _source(file: str, since: float) -> str:
    """The text of a file as it ran, or of a cell of a notebook; "" if it is not to be had."""
    if not os.path.isabs(file) or not os.path.exists(file):
        known = linecache.cache.get(file, ())
        return "".join(known[2]) if len(known) == 4 and known[1] is None else ""  # no file: what the notebook gave
    try:
        found = os.stat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES or found.st_mtime > since:
            return ""
        with tokenize.open(file) as text:  # not linecache.getlines, which would keep it for the program's life
            return text.read()
    except own(OSError, ValueError, SyntaxError):  # gone meanwhile, or in no encoding that it names
        return ""


def _bases(trees: Collection[ast.Module]) -> dict[str, set[str]]:
    """By the name of a class, those that it inherits from, and its own."""
    direct = {
        one.name: {name for base in one.bases if (name := getattr(base, "attr", getattr(base, "id", "")))}
        for tree in trees
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef)
    }
    every: dict[str, set[str]] = {}
    for name in direct:
        seen, left = {name}, [name]
        while left:
            new = direct.get(left.pop(), set()) - seen
            seen |= new
            left += new
        every[name] = seen
    return every


@dataclass(slots=True)
class _Reader:
    wanted: _Wanted
    file: str
    bases: dict[str, set[str]]
    found: _Found

    def read(self, node: ast.AST, place: _Place) -> None:
        for child in ast.iter_child_nodes(node):
            inside = place
            if isinstance(child, ast.ClassDef):
                inside = _Place(
                    place.function, f"{place.prefix}{child.name}.", child.name, place.variables, place.loops
                )
            elif isinstance(child, _FUNCTIONS):
                name = place.prefix + child.name
                inside = _Place(name, f"{name}.<locals>.", place.cls, _variables(child))
                defaults = (*child.args.defaults, *(one for one in child.args.kw_defaults if one is not None))
                self.found.escapes |= any(self._is_it(one, place) for one in defaults)
            elif isinstance(child, _LOOPS):
                inside = _Place(place.function, place.prefix, place.cls, place.variables, True)
            self._puts(child, inside)
            self._escapes(child, inside)
            returned = child.value if isinstance(child, ast.Return) else None
            self.read(returned if isinstance(returned, ast.Tuple) else child, inside)

    def _is_it(self, node: ast.AST, place: _Place) -> bool:
        """Whether this is the container, by its name."""
        wanted = self.wanted
        if isinstance(node, ast.Attribute):
            if not wanted.is_attribute or node.attr != wanted.name:
                return False
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            return not of_self or not wanted.cls or place.cls in self.bases.get(wanted.cls, {wanted.cls})
        if not isinstance(node, ast.Name) or wanted.is_attribute or node.id != wanted.name:
            return False
        return wanted.function in place.function.split(".") if wanted.function else node.id not in place.variables

    def _puts(self, node: ast.AST, place: _Place) -> None:
        for target, values in _targets(node):
            self.found.put_to.add(getattr(target, "attr", getattr(target, "id", "")))
            if not self._is_it(target, place) or all(map(_is_number, values)):
                continue
            owner = place.function.rpartition(".")[2] == (self.wanted.function or "<module>")
            if self.wanted.is_attribute or place.loops or not owner:  # else it happens once
                self.found.puts.add((self.file, getattr(node, "lineno", 0), place.function))

    def _escapes(self, node: ast.AST, place: _Place) -> None:
        """Notes where the container gets another name."""
        given: list[ast.AST] = []
        if isinstance(node, ast.Call):
            if getattr(node.func, "attr", getattr(node.func, "id", "")) not in _READERS | _PUTS_INTO_FIRST:
                given = [*node.args, *(one.value for one in node.keywords)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            given = [node.value]
            if isinstance(node.value, (ast.Subscript, ast.Call)) and self._is_it(_without_entries(node.value), place):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.found.others |= {getattr(one, "attr", getattr(one, "id", "")) for one in targets}
            if isinstance(node.value, ast.Attribute) and node.value.attr in _PUTS:  # push = losses.append
                given = [node.value, node.value.value]
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)) and isinstance(
            getattr(node, "ctx", ast.Load()), ast.Load
        ):
            given = list(node.elts)
        elif isinstance(node, ast.Dict):
            given = list(node.values)
        elif isinstance(node, (ast.Yield, ast.Await)) and node.value is not None:
            given = [node.value]
        self.found.escapes |= any(self._is_it(one, place) for one in given)


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """What it assigns, and its parameters; those of functions inside of it are among them."""
    found, elsewhere = set(), set()
    for one in ast.walk(function):
        if isinstance(one, ast.arg):
            found.add(one.arg)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.add(one.id)
        elif isinstance(one, (ast.Global, ast.Nonlocal)):
            elsewhere.update(one.names)
    return frozenset(found - elsewhere)


def _targets(node: ast.AST) -> Iterator[tuple[ast.AST, list[ast.expr]]]:
    """The containers that a statement or call puts something into, and what."""
    if isinstance(node, ast.Call):
        called, values = node.func, [*node.args, *(one.value for one in node.keywords)]
        if isinstance(called, ast.Attribute) and called.attr in _PUTS:
            yield _without_entries(called.value), values
        elif node.args and getattr(called, "attr", getattr(called, "id", "")) in _PUTS_INTO_FIRST:
            yield _without_entries(node.args[0]), values[1:]
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Subscript):
                yield _without_entries(target), [node.value]
            elif _grows(target, node.value):
                yield target, [node.value]
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.BitOr)):
        yield _without_entries(node.target), [node.value]


def _is_number(node: ast.expr) -> bool:
    """Whether it is certainly no tensor."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in _NUMBERS
    return isinstance(node, (ast.Constant, ast.JoinedStr))


def _without_entries(node: ast.AST) -> ast.AST:
    """seen of seen[key], seen.get(key) and seen.setdefault(key, [])."""
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ENTRIES:
            node = node.func.value
        else:
            return node


def _grows(target: ast.expr, value: ast.expr) -> bool:
    """losses = losses + [loss], losses = [*losses, loss]"""
    whole = _dump(target)
    parts: list[ast.expr] = []
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.BitOr)):
        parts = [value.left, value.right]
    elif isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        parts = [one.value for one in value.elts if isinstance(one, ast.Starred)]
    return any(_dump(one) == whole for one in parts)


def _dump(node: ast.expr) -> str:
    """The same for what is read and what is written. From Python 3.15 on ast.dump leaves out Load()."""
    return re.sub(r"(?:, )?ctx=(?:Load|Store)\(\)", "", ast.dump(node))
