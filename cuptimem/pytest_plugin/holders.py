"""Who still has what a test left behind: fixtures of a wider scope, caches that libraries make once, and for a failure
the names that lead to the rest.

How objects are looked at: see cuptimem/objects/reachable.py, for names cuptimem/objects/referrers.py.
"""

from __future__ import annotations

import collections
import functools
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from cuptimem.errors import own
from cuptimem.objects.reachable import Tensors, owner
from cuptimem.record.holders import Want, find
from cuptimem.report.leaks import Holder, Leak
from cuptimem.report.model import KeptBlock
from cuptimem.report.stacks import Frame, user_frame

_MOST = 1 << 16  # objects looked at below one fixture
_MOST_OF_PACKAGES = 1 << 18  # ... below the modules of all packages that left something
_SIZES = 8  # that one line may make for one cache: a table for each dtype or shape
_INSTALLED = "-packages/"  # site-packages, dist-packages: what Frame.is_library goes by
_CONTAINERS = (dict, list, tuple, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict)
_cache_type: type = type(functools.cache(lambda: None))


@dataclass
class Holders:
    """What is known of the blocks that a test left behind."""

    fixtures: dict[int, str] = field(default_factory=dict)  # address of a block -> the fixture that has it
    once: dict[int, str] = field(default_factory=dict)  # ... -> the cache of a library that it is in
    notes: list[str] = field(default_factory=list)

    def is_harmless(self, block: KeptBlock) -> bool:
        return block.address in self.once

    def paths(self, blocks: Sequence[KeptBlock]) -> tuple[Holder, ...]:
        """From names to blocks that no fixture has."""
        wanted = [(block.address, block.bytes) for block in blocks if block.address not in self.fixtures]
        return self._find(Want(wanted)) if wanted else ()

    def graph_paths(self, leak: Leak, blocks: Sequence[KeptBlock]) -> tuple[Holder, ...]:
        """From names to the graph nodes that grow; blocks: what is alive."""
        lines = {frame for frame in (leak.frame, leak.made_frame) if frame is not None}
        own = [block.address for block in blocks if user_frame(block.stack) in lines]
        return self._find(Want([], leak.count, leak.bytes, own))

    def _find(self, want: Want) -> tuple[Holder, ...]:
        try:
            return find([want])[0]
        except own(Exception) as error:  # the failure is one without it
            self.notes.append(f"holders are not known: {type(error).__name__}: {error}")
            return ()


class Caches:
    """What was found in caches of libraries during a run, so that the second of a kind is no warm-up."""

    def __init__(self) -> None:
        # Cache, stack and device -> by size, the first block's address.
        self._known: dict[tuple[object, ...], dict[int, int]] = {}

    def find(self, item: pytest.Item, blocks: Sequence[KeptBlock]) -> Holders:
        """Looks through the fixtures that outlive the test, and through the packages that made blocks."""
        holders = Holders()
        torch: Any = sys.modules.get("torch")
        if not blocks or not hasattr(torch, "UntypedStorage"):
            return holders
        tensors = Tensors(torch)
        wanted = {block.address for block in blocks}
        for name, scope, roots in _wider_fixtures(item):
            found = tensors.below(roots, _may_enter, _MOST, {})
            for address in found.keys() & wanted:
                holders.fixtures.setdefault(address, f"fixture {name!r} ({scope})")
        self._find_once(holders, tensors, [block for block in blocks if block.address not in holders.fixtures])
        return holders

    def _find_once(self, holders: Holders, tensors: Tensors, blocks: Sequence[KeptBlock]) -> None:
        by_package: dict[str, list[KeptBlock]] = {}
        for block in blocks:
            for package in _packages(block.stack):
                by_package.setdefault(package, []).append(block)
        seen: dict[int, Any] = {}
        named: dict[str, int] = {}
        for module, space in _spaces(set(by_package)):
            package = module.partition(".")[0]
            made = {block.address: block for block in by_package[package]}
            found = tensors.below(space.values(), _of_package(package, module), _MOST_OF_PACKAGES, seen)
            for address in sorted(found.keys() & set(made)):
                if address not in holders.once and self._is_first(module, made[address], set(found)):
                    holders.once[address] = module
                    named[module] = named.get(module, 0) + made[address].bytes
            if len(seen) >= _MOST_OF_PACKAGES:
                holders.notes.append(f"of what {package} keeps, only the first {_MOST_OF_PACKAGES:,} objects are known")
                break
        for module, total in sorted(named.items()):
            holders.notes.append(f"not counted: {total:,} bytes that a global of {module} keeps, as if made once")

    def _is_first(self, module: str, block: KeptBlock, alive: set[int]) -> bool:
        """No warm-up is another of its size from its line, while the first one is alive; nor are many sizes."""
        sizes = self._known.setdefault((module, _library_part(block.stack), block.device), {})
        first = sizes.get(block.bytes)
        if first is not None and first != block.address and first in alive:
            return False
        if first is None and len(sizes) >= _SIZES:
            return False
        sizes[block.bytes] = block.address
        return True


def _library_part(stack: Sequence[Frame]) -> tuple[Frame, ...]:
    return tuple(itertools.takewhile(lambda frame: frame.is_library, stack))


def _packages(stack: Sequence[Frame]) -> set[str]:
    """The installed packages below the innermost line of the user's own code; none if that line made the block."""
    found = set()
    for frame in _library_part(stack):
        _, installed, inside = frame.file.rpartition(_INSTALLED)
        if installed:
            found.add(re.split(r"[/.]", inside, maxsplit=1)[0])
    return found


def _wider_fixtures(item: pytest.Item) -> Iterator[tuple[str, str, list[Any]]]:
    """Name and scope of each fixture of the test that goes on, and what it has: its value, what its end will need."""
    definitions: dict[str, list[Any]] = {}
    for name, found in getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).items():
        definitions.setdefault(name, []).extend(found)
    for name, asked in getattr(getattr(item, "_request", None), "_fixture_defs", {}).items():  # getfixturevalue
        definitions.setdefault(name, []).append(asked)
    for name, found in definitions.items():
        for definition in found:
            cached = getattr(definition, "cached_result", None)
            if cached is not None and definition.scope != "function":
                yield name, definition.scope, [cached[0], *getattr(definition, "_finalizers", ())]


def _spaces(packages: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in packages and type(module) is types.ModuleType:
            yield name, module.__dict__


# --- what refers to what ----------------------------------------------------------------------------------------------


def _may_enter(one: Any) -> bool:
    """Not into what leads everywhere: classes, modules, and pytest itself."""
    return not issubclass(type(one), (type, types.ModuleType, types.CodeType)) and not owner(type(one)).startswith(
        "_pytest."
    )


def _of_package(package: str, module: str) -> Callable[[Any], bool]:
    """What belongs to a package's module: containers, caches, and functions, classes and objects of its own."""

    def may_enter(one: Any) -> bool:
        kind = type(one)
        if kind in _CONTAINERS or kind is _cache_type or kind is types.CellType:
            return True
        if kind is types.FunctionType:
            return bool(one.__module__ == module)
        if issubclass(kind, type):
            return owner(one) == module
        return owner(kind).partition(".")[0] == package

    return may_enter
