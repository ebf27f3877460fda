"""Whether a module of an activation function may have inplace=True: for every call of it that the program can make.

A run of a few steps does not come to all of them. So the module must have one owner, an attribute of one other module,
and by the program's source nothing else may call it or keep what it is given.
"""

import ast
import gc
import re
import sys
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any

from torch import nn
from torch.nn.modules import module as calls

from cuptimem.simulation.last_use import forget
from cuptimem.simulation.places import is_programs, source, tree

_LIBRARY = "torch.nn.modules."
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_HARMLESS = "torch.nn.utils."  # its hooks compute a weight before each call
_REGISTERS = re.compile(r"\bregister_(?:module_)?(?:full_)?(?:forward|backward)(?:_pre)?_hook\b")
_CHILDREN = frozenset({"children", "named_children", "_modules", "get_submodule"})
_VISITS = frozenset({"enumerate", "iter", "list", "next", "reversed", "tuple", "zip", "getattr"})
_SWEEPS = 16  # over all objects; a program that makes its modules in each step has more, and none that is known
_PLACES = ast.Constant | ast.Slice | ast.UnaryOp

_Row = dict[str, Any]
_Line = tuple[str, int]
_Owners = dict[int, list[tuple[nn.Module, str]]]


class Modules:
    def __init__(self) -> None:
        self._rows: list[_Row] = []  # those with operands
        self._calls: list[tuple[_Row, Any, _Line]] = []  # of modules that have not been looked at
        self._entries: Any = weakref.WeakKeyDictionary()  # of a module; None: something else refers to it
        self._called: dict[_Entry, tuple[list[_Row], set[_Line]]] = defaultdict(lambda: ([], set()))
        self._sweeps = 0
        self._is_hooked = False

    def made(self, row: _Row, frame: FrameType | None) -> None:
        """An operator has: its row, of which `into` has operands, and the innermost frame that led to it."""
        if row["into"]:
            self._rows.append(row)
        module: nn.Module | None = None
        while frame is not None and not is_programs(frame.f_code.co_filename):
            if module is None and frame.f_code.co_name == "_call_impl":
                variables = frame.f_locals
                module = variables.get("self")
                forget(frame, variables)
            frame = frame.f_back
        if module is None or frame is None:
            return
        if "inplace" not in vars(module):
            row["into"] = []
            return
        self._calls.append((row, weakref.ref(module), (frame.f_code.co_filename, frame.f_lineno)))

    def look(self) -> None:
        """When the calls have returned."""
        for row, reference, line in self._calls:
            module = reference()
            if not _is_plain(module):
                module = None
            if module is not None and module not in self._entries and self._sweeps < _SWEEPS:
                self._sweeps += 1
                self._look()
            entry = self._entries.get(module) if module is not None else None
            if entry is None:
                row["into"] = []
            else:
                rows, lines = self._called[entry]
                rows.append(row)
                lines.add(line)
        self._calls.clear()

    def finish(self) -> None:
        """Leaves no operand in whose place a result could lie in one call and not in another."""
        self.look()
        files = _files()
        if self._rows and (self._is_hooked or _is_hooked(_all_modules()) or any(map(_registers, files))):
            for row in self._rows:
                row["into"] = []
        for entry, (rows, lines) in self._called.items():
            if not entry.is_called_at(lines, files):
                for row in rows:
                    row["into"] = []

    def _look(self) -> None:
        every = _all_modules()
        self._is_hooked = self._is_hooked or _is_hooked(every)
        owners: _Owners = defaultdict(list)
        for parent in every:
            for name, child in parent._modules.items():
                owners[id(child)].append((parent, name))
        some = {id(one): one for one in every if ("inplace" in vars(one) or _is_sequential(one)) and _is_plain(one)}
        references = _references(some, (every, some))
        single = {key for key, count in references.items() if count == 1}
        for one in some.values():
            self._entries.setdefault(one, _entry(one, owners, single))


def _all_modules() -> list[nn.Module]:
    every = (one for one in gc.get_objects() if issubclass(type(one), nn.Module))
    return [one for one in every if isinstance(vars(one).get("_modules"), dict)]


def _is_plain(one: object) -> bool:
    """Whether no code of the program's runs when it is looked up."""
    return type(one).__hash__ is object.__hash__ and type(one).__eq__ is object.__eq__


def _is_hooked(modules: list[nn.Module]) -> bool:
    every = [getattr(calls, f"_global{name}", None) for name in _HOOKS]
    every += [vars(one).get(name) for one in modules for name in _HOOKS]
    hooks = (hook for found in every if found for hook in found.values())
    return any(not str(getattr(type(one), "__module__", "")).startswith(_HARMLESS) for one in hooks)


def _references(modules: dict[int, nn.Module], own: tuple[object, ...]) -> dict[int, int]:
    """How many references each has. They are none of calls in libraries and of the caller's own objects."""
    counts: dict[int, int] = defaultdict(int)
    left_out = {id(one) for one in own}
    for one in gc.get_referrers(*modules.values()):
        is_call = isinstance(one, FrameType) and not is_programs(one.f_code.co_filename)
        if id(one) not in left_out and not is_call:
            for referent in gc.get_referents(one):
                counts[id(referent)] += id(referent) in modules
    return counts


@dataclass(frozen=True, slots=True)
class _Entry:
    """By which attribute of these classes its calls come, "" for none; the names of the nn.Sequential around it, and
    of lists of modules around these."""

    attribute: str
    classes: frozenset[str]
    names: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()

    def is_called_at(self, lines: set[_Line], files: list[str]) -> bool:
        """Whether the program has no other call of it than these. files: its own."""
        if any(file not in files for file, _ in lines):  # code without a source
            return False
        reads = (one for file in files for one in _reads(file, self.attribute, self.classes))
        return all(one in lines for one in reads) and not any(
            _takes_apart(file, self.names, self.lists) for file in files
        )


def _entry(module: nn.Module, owners: _Owners, single: set[int]) -> _Entry | None:
    """single: the modules to which nothing refers but one owner."""
    names: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    while id(module) in single and len(owners[id(module)]) == 1:
        parent, name = owners[id(module)][0]
        found = _Entry(
            name if name.isidentifier() else "", frozenset(one.__name__ for one in type(parent).__mro__), names
        )
        if not _is_sequential(parent):
            file = getattr(sys.modules.get(type(parent).__module__), "__file__", None)
            return found if isinstance(file, str) and is_programs(file) else None
        of_parent = _names(parent, owners)
        names, lists = names | of_parent[0], lists | of_parent[1]
        children = list(parent._modules)
        for key in reversed(children[: children.index(name)]):
            before = parent._modules[key]
            if before is None or not _is_library(before):
                return None
            if next(before.parameters(), None) is not None:  # it makes a tensor of its own
                return replace(found, names=names, lists=lists)
        module = parent
    return None


def _is_sequential(module: nn.Module) -> bool:
    return type(module).forward is nn.Sequential.forward


def _is_library(module: nn.Module) -> bool:
    """Whether no code of the program's runs in its call, which could keep what it gives."""
    if _is_sequential(module):
        return all(one is not None and _is_library(one) for one in module._modules.values())
    return type(module).__module__.startswith(_LIBRARY)


def _names(module: nn.Module, owners: _Owners) -> tuple[frozenset[str], frozenset[str]]:
    """Attributes, and variables of what runs, that hold it or an nn.Sequential around it; those that hold lists."""
    names: set[str] = set()
    lists: set[str] = set()
    around: list[nn.Module] = [module]
    while around:
        one = around.pop()
        found = lists if isinstance(one, nn.ModuleList) else names
        found |= {name for _, name in owners[id(one)]} | set(_variables(one))
        if type(one) not in (nn.Sequential, nn.ModuleList):
            found.add("self")
        around += [parent for parent, _ in owners[id(one)] if isinstance(parent, nn.Sequential | nn.ModuleList)]
    return frozenset(names), frozenset(lists)


def _variables(value: object) -> Iterator[str]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if is_programs(frame.f_code.co_filename):
            variables = frame.f_locals
            yield from [name for name, held in [*variables.items(), *frame.f_globals.items()] if held is value]
            forget(frame, variables)
        frame = frame.f_back


def _files() -> list[str]:
    """The program's, as far as they are loaded."""
    files = {getattr(one, "__file__", None) for one in list(sys.modules.values()) if isinstance(one, ModuleType)}
    return [one for one in files if isinstance(one, str) and is_programs(one)]


@lru_cache(None)
def _registers(file: str) -> bool:
    return _REGISTERS.search(source(file)) is not None


@lru_cache(None)
def _nodes(file: str) -> tuple[tuple[ast.AST, ast.AST, str], ...]:
    """Each with the node around it, and the class."""
    if (module := tree(file)) is None:
        return ()
    found: list[tuple[ast.AST, ast.AST, str]] = [(module, module, "")]
    for node, _, name in found:
        inside = node.name if isinstance(node, ast.ClassDef) else name
        found += [(one, node, inside) for one in ast.iter_child_nodes(node)]
    return tuple(found)


def _reads(file: str, attribute: str, classes: frozenset[str]) -> Iterator[_Line]:
    """The lines of the calls of this attribute, 0 for what is no call."""
    for node, around, name in _nodes(file) if attribute else ():
        if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Load):
            is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            if not (is_self and name and name not in classes):
                yield file, around.lineno if isinstance(around, ast.Call) and around.func is node else 0
        if isinstance(node, ast.Constant) and node.value == attribute and _calls(around) == "getattr":
            yield file, 0


def _takes_apart(file: str, names: frozenset[str], lists: frozenset[str]) -> bool:
    """Whether it may call members of an nn.Sequential with one of these names, or that is in one of these lists."""
    nodes = _nodes(file) if names else ()
    for node, around, _ in nodes:
        if not isinstance(around, ast.For | ast.comprehension) or around.iter is not node:
            continue
        if any(_last(one) in lists for one in ast.walk(node)):
            names |= {one.id for one in ast.walk(around.target) if isinstance(one, ast.Name)}
    for node, around, _ in nodes:
        if isinstance(node, ast.Attribute) and node.attr in _CHILDREN:
            return True
        if isinstance(node, ast.Subscript):
            is_called = isinstance(around, ast.Call) and around.func is node and isinstance(node.slice, _PLACES)
            is_read = isinstance(around, ast.Attribute) and around.attr not in ("forward", "__call__")
            if is_called or (_last(node.value) in names and not is_read):
                return True
        elif _last(node) in names:
            is_iterated = isinstance(around, ast.For | ast.comprehension) and around.iter is node
            if is_iterated or isinstance(around, ast.Starred) or _calls(around) in _VISITS:
                return True
    return False


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _calls(node: ast.AST) -> str:
    return _last(node.func) if isinstance(node, ast.Call) else ""
