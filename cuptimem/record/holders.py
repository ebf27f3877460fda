"""Who holds blocks that are alive: paths from names of the program's to tensors, through Python's objects and
autograd's graph. Runs inside the profiled process and runs none of the program's code.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cuptimem import _core, sizes
from cuptimem.errors import own
from cuptimem.objects import graph_paths, living, referrers
from cuptimem.objects.referrers import Route, Segment
from cuptimem.record.recorder import HolderSearch
from cuptimem.report.cycles import CYCLE
from cuptimem.report.leaks import OTHERS, Holder

_PATHS = 3  # of each leak
_SHARE = 0.1  # of the largest path's bytes: what holds less is left out
BLOCKS = 1 << 12  # of one leak that are searched for; a larger leak is sampled evenly
_NEAREST = 1 << 12  # objects that an early search visits
_NODES = 1 << 7  # ... and graph nodes
_SAME = 3  # tensors of one block
_VIEW = 4  # a view of less than such a part of its block is said to keep it
_VIEWED_BYTES = 4096  # blocks below that are not worth a word
_STEPS = 8  # of a path in words
_LENGTH = 400  # characters
_TENSOR, _STORAGE, _CONTEXT = 1, 2, 3  # _CONTEXT: of a custom autograd function

Block = tuple[int, int]  # address, bytes


@dataclass(frozen=True, slots=True)
class _Found:
    """A way to some blocks or nodes. shown: of a block, the most bytes of it that a tensor has; 0: all, or unknown."""

    route: Route
    count: int
    bytes: int
    shown: int = 0


Places = tuple[tuple[str, str, int], ...]  # file, function and line of each frame of a stack


@dataclass(slots=True)
class Want:
    """What to search for: a leak's blocks, or for graph nodes the lines that made them."""

    blocks: list[Block]
    nodes: int = 0
    bytes: int = 0  # of the nodes
    addresses: Collection[int] = ()  # of blocks made on the nodes' lines
    whole: bool = False  # whether what the largest holders leave is worth a word however little it is
    scale: float = field(init=False, default=1.0)
    cycles: tuple[Holder, ...] = field(init=False, default=())  # whole: those without any other holder are found apart
    by_variable: bool = field(init=False, default=False)  # most of it is reached from a variable, not a module's state

    def __post_init__(self) -> None:
        self.sample(BLOCKS)

    def sample(self, most: int) -> None:
        """Searches for so many of the blocks only, evenly chosen."""
        if len(self.blocks) > most:
            every = -(-len(self.blocks) // most)
            self.scale *= len(self.blocks) / len(self.blocks[::every])
            self.blocks = self.blocks[::every]


def find(
    wants: Sequence[Want],
    error: BaseException | None = None,
    *,
    is_short: bool = False,
    look: HolderSearch | None = None,
) -> list[tuple[Holder, ...]]:
    """For each, who holds it, the most bytes first. error: the functions that it has left count as running. is_short:
    only the objects nearest to names of the program's own are visited. look: gets what a collection would free."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "UntypedStorage") or not wants:
        return [() for _ in wants]
    finder = None
    with living.no_collection():  # which runs finalizers, and what was found must stay what it is
        try:
            finder = _Finder(torch, error, is_short)
            found = finder.find(wants)
            if look is not None and not look.is_again:
                look.garbage = finder.search.garbage()
            return found
        finally:
            if finder is not None:
                finder.search.close()


class _Finder:
    def __init__(self, torch: Any, error: BaseException | None, is_short: bool) -> None:
        self.torch = torch
        self.base = torch._C.TensorBase
        self.is_lazy_copy = getattr(torch._C, "_is_cow_tensor", lambda tensor: False)
        kinds = ((self.base, _TENSOR), (torch._C.StorageBase, _STORAGE), (torch._C._FunctionBase, _CONTEXT))
        self.kinds = {id(base): kind for base, kind in kinds}
        self.search = referrers.Search(error, _NEAREST if is_short else 0)
        self.at: dict[int, list[Any]] = {}  # by address of a block: tensors on it, or what stands for it
        self.many: set[int] = set()  # addresses of blocks with more tensors than are noted
        self.roots: list[Any] = []  # tensors that autograd has made
        self.contexts: list[Any] = []  # of custom functions
        self.leaves: list[Any] = []  # whose gradients are wanted
        self.graph = graph_paths.GraphWalk(torch, _NODES if is_short else 0)

    def find(self, wants: Sequence[Want]) -> list[tuple[Holder, ...]]:
        addresses = {address for want in wants for address, _ in want.blocks}
        with living.undisturbed(self.torch):
            self._tensors(addresses | {address for want in wants for address in want.addresses})
        wanted = [one for address in addresses for one in self.at.get(address, ())]
        wants_nodes = any(want.nodes for want in wants)
        self.search.run([*wanted, *self.roots, *self.contexts] if wants_nodes else wanted)
        missing = {one for one in addresses if not any(map(self.search.has_name, self.at.get(one, ())))}
        if missing or wants_nodes:
            if not wants_nodes:
                self.search.run([*self.roots, *self.contexts])
            self.search.run(self._graphs(missing))
        return [self._nodes(want) if want.nodes else self._blocks(want) for want in wants]

    # -- what lies where -----------------------------------------------------------------------------------------------

    def _tensors(self, wanted: Collection[int]) -> None:
        leaves: list[Any] = []
        for kind, item in _core.select(self.search.objects, self._kind):
            if kind == _CONTEXT:
                self.contexts.append(item)
            elif kind == _STORAGE:
                self._note(item, self._memory(item), wanted)
            else:
                for address in self._addresses(item):
                    self._note(item, address, wanted)
                try:
                    (leaves if self.base.is_leaf.__get__(item) else self.roots).append(item)
                except own(RuntimeError):  # inside torch.func
                    continue
        # During a backward pass there are none.
        for leaf, grad in zip(leaves, living.gradients(self.torch, leaves) or (), strict=False):
            address = 0 if grad is None else self._address(grad)
            if address in wanted:
                if all(one is not grad for one in self.at.get(address, ())):
                    self._note(grad, address, wanted)
                self.search.lead(grad, leaf, (Segment(".grad"),))
                self.leaves.append(leaf)

    def _kind(self, cls: type) -> int:
        return next((self.kinds[id(one)] for one in living.mro(cls) if id(one) in self.kinds), 0)

    def _note(self, tensor: Any, address: int, wanted: Collection[int]) -> None:
        if address in wanted:
            same = self.at.setdefault(address, [])
            if len(same) < _SAME:
                same.append(tensor)
            else:
                self.many.add(address)

    def _shown(self, address: int, size: int) -> int:
        """The most bytes of the block that a tensor has which Python refers to, where all of these are small views. The
        tensor that was viewed lives on without a reference."""
        tensors = [one for one in self.at[address] if self._is_used(one)]
        shown = max(map(self._bytes, tensors), default=sys.maxsize)
        return shown if address not in self.many and _is_view(shown, size) else 0

    def _is_used(self, item: Any) -> bool:
        return type(item) is not object and (self.search.has_name(item) or self.search.is_referred_to(item))

    def _bytes(self, tensor: Any) -> int:
        """Of its elements; no bound of a tensor with a graph, which may have saved the whole block, of a sparse one and
        of a storage."""
        try:
            if not self._address(tensor) or not self.base.is_leaf.__get__(tensor):
                return sys.maxsize
            layout = zip(self.base.size(tensor), self.base.stride(tensor), strict=True)  # an expanded row counts once
            return int(math.prod(size for size, stride in layout if stride) * self.base.element_size(tensor))
        except own(RuntimeError, NotImplementedError, TypeError):
            return sys.maxsize

    def _address(self, tensor: Any) -> int:
        try:  # the address of a lazy copy is that of a real one, which asking for it would make
            return 0 if self.is_lazy_copy(tensor) else self._memory(self.base.untyped_storage(tensor))
        except own(RuntimeError, NotImplementedError, AttributeError, TypeError):  # fake, functional, sparse; a storage
            return 0

    def _memory(self, storage: Any) -> int:
        try:
            return 0 if storage.device.type == "meta" else int(storage.data_ptr())
        except own(RuntimeError, NotImplementedError, AttributeError):
            return 0

    def _addresses(self, tensor: Any) -> list[int]:
        """Of its storage, or of the tensors inside a sparse one, which C++ alone holds."""
        address = self._address(tensor)
        if address or not living.is_plain(self.torch, tensor):
            return [address]
        try:
            names = living.part_names(self.torch, tensor) or ()
            return [self._address(getattr(self.base, name)(tensor)) for name in names]
        except own(RuntimeError, NotImplementedError, AttributeError):
            return []

    def _graphs(self, missing: Collection[int]) -> list[Any]:
        """Stand-ins for blocks that autograd alone holds. They are reached from tensors and nodes that have names."""
        graph, named = self.graph, self.search.has_name
        graph.walk(
            # A variable of the moment reaches what a name that outlives the step does: that one holds it.
            (filter(self.search.is_kept, self.roots), filter(self.search.is_kept, self.contexts)),
            (filter(named, self.roots), filter(named, self.contexts)),
            (filter(self.search.is_referred_to, self.roots), ()),  # from cycles, to what nothing else has led to
        )
        stand_ins: list[Any] = []
        for address in missing:
            node = graph.saved_at.get(address)
            if node is not None:
                stand_ins.append(object())
                self.at[address] = [stand_ins[-1]]
                self._lead(stand_ins[-1], node, "saved by ")
        for leaf in self.leaves:
            node = None if named(leaf) else graph.saved_at.get(self._address(leaf))
            if node is not None:
                self._lead(leaf, node, "saved by ")
        for node in self.contexts:
            if not named(node) and id(node) in graph.reached:
                self._lead(node, node, "")
        return stand_ins

    def _lead(self, item: Any, node: Any, verb: str) -> None:
        """Adds what only autograd refers to, behind a tensor or a node that Python has."""
        before, nodes = self.graph.chain(node)
        source = nodes.pop(0) if before is None else before
        names = [referrers._class_name(type(one)) for one in nodes]
        segments = [Segment(".grad_fn")] if before is not None else []
        if len(names) > 1:
            segments.append(Segment(names[0]))
        if len(names) > 2:
            segments.append(Segment("…"))
        segments.append(Segment(verb + (names[-1] if names else referrers._class_name(type(node)))))
        self.search.lead(item, source, tuple(segments))

    # -- what was found ------------------------------------------------------------------------------------------------

    def _blocks(self, want: Want) -> tuple[Holder, ...]:
        found = [
            _Found(self._route(self.at[address]), 1, size, self._shown(address, size))
            if address in self.at
            else _Found(self._route_of_nothing(), 1, size)
            for address, size in want.blocks
        ]
        want.by_variable = 2 * sum(map(self._is_of_variable, want.blocks)) > len(want.blocks)
        if want.whole:  # a collection frees these
            cycles = [one for one in found if one.route.head.startswith(CYCLE)]
            want.cycles = _grouped(cycles, len(cycles), sum(one.bytes for one in cycles), want.scale)
            found = [one for one in found if not one.route.head.startswith(CYCLE)]
        return _grouped(found, len(found), sum(one.bytes for one in found), want.scale, want.whole)

    def _is_of_variable(self, block: Block) -> bool:
        return any(self.search.is_of_variable(one, self.torch.nn.Module) for one in self.at.get(block[0], ()))

    def _nodes(self, want: Want) -> tuple[Holder, ...]:
        """The tensors from which most nodes are reached; those made on the leak's own lines, if there are any."""
        roots = [one for one in (*self.roots, *self.contexts) if id(one) in self.graph.nodes_of]
        own = {id(one) for address in want.addresses for one in self.at.get(address, ())}
        roots = [one for one in roots if id(one) in own] or roots
        each = want.bytes / want.nodes
        seen = sum(self.graph.nodes_of[id(one)] for one in roots)
        scale = want.nodes / seen if self.graph.is_partial and 0 < seen < want.nodes else 1.0
        found = []
        for root in roots:
            count = round(self.graph.nodes_of[id(root)] * scale)
            route = self._route([root])
            is_tensor = root is not self.graph.reached.get(id(root), (None,))[0]
            segments = (*route.segments, Segment(".grad_fn")) if is_tensor else route.segments
            found.append(_Found(Route(route.head, route.tail, segments), count, round(count * each)))
        return _grouped(found, want.nodes, want.bytes)

    def _route_of_nothing(self) -> Route:
        """Of a block on which Python has no tensor, and which no graph that Python can reach has saved."""
        if self.search.is_of_some or self.graph.is_partial:
            return Route(referrers.NOT_SEARCHED, "", ())
        is_cast = getattr(self.torch._C, "_is_any_autocast_enabled", bool)() and self.torch.is_autocast_cache_enabled()
        return Route(referrers.OF_CPP + (" (autocast's cache is on)" if is_cast else ""), "", ())

    def _route(self, items: Sequence[Any]) -> Route:
        routes = [route for route in map(self._named_route, items) if route is not None]
        return min(routes, key=lambda one: len(one.segments)) if routes else self.search.unnamed(items[0])

    def _named_route(self, item: Any) -> Route | None:
        """Of a parameter and its gradient the model's, where the optimizer's is shorter."""
        optimizer = getattr(sys.modules.get("torch.optim"), "Optimizer", None)
        owned = None if optimizer is None else self.search.owned(item, self.torch.nn.Module, optimizer)
        return owned or self.search.route(item)


def _is_view(shown: int, size: int) -> bool:
    return shown * _VIEW < size and size >= _VIEWED_BYTES


def _grouped(found: list[_Found], count: int, size: int, scale: float = 1.0, whole: bool = False) -> tuple[Holder, ...]:
    """Routes that differ in positions alone are one path; of many paths, also those that differ in keys. What the
    largest paths leave of all that were searched for is the last one."""
    found = [one for one in found if one.route.head != referrers.NOT_SEARCHED] or found
    groups = _by_key(found)
    if len(groups) > _PATHS:
        found = [replace(one, route=one.route.without_keys()) for one in found]
        groups = _by_key(found)
    if len(groups) > _PATHS:  # of a model's weights each has one
        groups = _by_key([replace(one, route=one.route.to_owner()) for one in found])
    holders = [
        Holder(
            _text([one.route for one in rows]) + _views(rows),
            round(sum(one.count for one in rows) * scale),
            round(sum(one.bytes for one in rows) * scale),
        )
        for rows in groups.values()
    ]
    holders.sort(key=lambda one: (-one.bytes, one.path))
    shown = [one for one in holders[:_PATHS] if one.bytes >= holders[0].bytes * _SHARE]
    blocks = round(count * scale) - sum(one.count for one in shown)
    left = round(size * scale) - sum(one.bytes for one in shown)
    # One path needs no word about the block that is just being made.
    is_worth_it = blocks > 0 and left > 0 and (whole or len(shown) > 1 or left >= size * scale * _SHARE)
    return (*shown, Holder(OTHERS, blocks, left)) if shown and is_worth_it else tuple(shown)


def _by_key(found: list[_Found]) -> dict[tuple[str, ...], list[_Found]]:
    groups: dict[tuple[str, ...], list[_Found]] = {}
    for one in found:
        groups.setdefault(one.route.key, []).append(one)
    return groups


def _views(rows: Sequence[_Found]) -> str:
    """Whether all that a path leads to are small views of large blocks."""
    if not all(one.shown for one in rows):
        return ""
    shown, whole = (sizes.text(max(bytes_)) for bytes_ in ([one.shown for one in rows], [one.bytes for one in rows]))
    if len(rows) == 1:
        return f": a view of {shown} that keeps {whole} (.clone() it)"
    return f": views of {shown} that keep {whole} each (.clone() them)"


def _text(routes: Sequence[Route]) -> str:
    """losses in train() → list[0:36] → .grad_fn → AddmmBackward0"""
    first = routes[0]
    steps = [f"{first.head} {first.tail}".rstrip()]
    for place, one in enumerate(first.segments):
        text = one.text
        if one.is_attribute:  # those in a row are written as in Python: .layers.0.weight (Linear)
            before = first.segments[place - 1] if place > 0 else None
            begun = steps.pop().rpartition(" (")[0] if before is not None and before.is_attribute else ""
            text = f"{begun}{text} ({one.owner})"
        if one.key:
            keys = {route.segments[place].key for route in routes}
            text = one.key if len(keys) == 1 else f"{text}[{len(keys)} keys]"
        if one.index is not None:
            text += _indices({index for route in routes if (index := route.segments[place].index) is not None})
        steps.append(text)
    if len(steps) > _STEPS:
        steps[_STEPS // 2 : -(_STEPS // 2) + 1] = ["…"]
    text = " → ".join(steps)
    text = text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
    return text.encode("utf-8", "backslashreplace").decode()


def _indices(found: set[int]) -> str:
    low, high = min(found), max(found)
    if low < 0 or len(found) not in (1, high - low + 1):
        return "[...]"
    return f"[{low}]" if low == high else f"[{low}:{high + 1}]"
