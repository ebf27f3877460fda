"""Who holds a leak, or what is alive, found while the process lives: paths from names of the program's to tensors.

At the outermost stop one search goes through Python's objects and autograd's graph: for what grows (a leak, or a
suspect that may be one), and for all that is alive by then of the largest lines. While the loop runs there are searches
for what grows alone. Their paths are written into the trace. Runs inside the profiled process and runs none of the
program's code.
"""

from __future__ import annotations

import _thread
import math
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cuptimem import _core, cell_names, sizes
from cuptimem.errors import own
from cuptimem.objects import graph_paths, living, referrers
from cuptimem.objects.referrers import Route, Segment
from cuptimem.record import refusals
from cuptimem.record.recorder import HolderSearch
from cuptimem.report.cycles import CYCLE, is_much
from cuptimem.report.leaks import OTHERS, UNDECIDED, Holder, Leak
from cuptimem.report.stacks import Frame, user_frame

_LEAKS = 10
_KEPT = 4  # of what stands under each
_LINES = 32  # whose live blocks are searched for at the end
_PATHS = 3  # of each leak
_SHARE = 0.1  # of the largest path's bytes: what holds less is left out
_BLOCKS = 1 << 12  # of one leak that are searched for; a larger leak is sampled evenly
_BLOCKS_EARLY = 1 << 9  # in an early search, of all leaks together
_NEAREST = 1 << 12  # objects that an early search visits
_NODES = 1 << 7  # ... and graph nodes
_SAME = 3  # tensors of one block
_VIEW = 4  # a view of less than such a part of its block is said to keep it
_VIEWED_BYTES = 4096  # blocks below that are not worth a word
_STEPS = 8  # of a path in words
_LENGTH = 400  # characters
_PATIENCE_SECONDS = 2.0  # for the analysis at the end, or the share below of the time recorded
_EVENTS_TOGETHER = 5000  # up to so many are read in the slice that searches, more in another thread
_CAUGHT_UP = 1 << 13  # ... and of what came since, in up to so many slices:
_TRIES = 8
_EARLY_SECONDS = 0.5  # ... of so few events as an early search reads, on a slow machine
_BESIDE_SECONDS = 5.0  # ... in a thread beside the program
_PATIENCE_SHARE = 0.01
_EARLY = ("one epoch", "no collection", "carried on")  # suspects that an early search includes, besides verdicts
_TENSOR, _STORAGE, _CONTEXT = 1, 2, 3  # _CONTEXT: of a custom autograd function
_OF_ALIVE = 4  # CM_HOLDER_ALIVE
_MORE = 8  # CM_HOLDER_MORE
_OF_BACKWARD, _OF_FORWARD = 16, 32  # CM_HOLDER_BACKWARD, CM_HOLDER_FORWARD
_DEVICES = {"cpu": _core.DEVICE_CPU, "cuda": _core.DEVICE_CUDA, "pinned": _core.DEVICE_PINNED}

_Block = tuple[int, int]  # address, bytes


@dataclass(frozen=True, slots=True)
class _Found:
    """A way to some blocks or nodes. shown: of a block, the most bytes of it that a tensor has; 0: all, or unknown."""

    route: Route
    count: int
    bytes: int
    shown: int = 0


_Line = tuple[str, int]
_Held = tuple[int, str, list[_Block]]  # what is alive of a line on a device: a stack that leads to it, where, what
_Places = tuple[tuple[str, str, int], ...]  # file, function and line of each frame of a stack


@dataclass(slots=True)
class Want:
    """What to search for: a leak's blocks, or for graph nodes the lines that made them."""

    blocks: list[_Block]
    nodes: int = 0
    bytes: int = 0  # of the nodes
    addresses: Collection[int] = ()  # of blocks made on the nodes' lines
    whole: bool = False  # whether what the largest holders leave is worth a word however little it is
    scale: float = field(init=False, default=1.0)
    cycles: tuple[Holder, ...] = field(init=False, default=())  # whole: those without any other holder are found apart
    by_variable: bool = field(init=False, default=False)  # most of it is reached from a variable, not a module's state

    def __post_init__(self) -> None:
        self.sample(_BLOCKS)

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

    def _is_of_variable(self, block: _Block) -> bool:
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


# -- of a recording ------------------------------------------------------------------------------------------------


def note(core: Any, look: HolderSearch) -> None:
    """Searches for the holders of what grows in a recording that still runs, at its end for those of all that is alive,
    and records them."""
    for _ in note_in_slices(core, look):
        continue


def note_in_slices(core: Any, look: HolderSearch) -> Iterator[None]:
    """The same in slices: what grows is read from the recording, then its holders are looked for."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "UntypedStorage"):
        return
    # Not alive: the program goes on behind this.
    patience = max(_PATIENCE_SECONDS, look.recorded * _PATIENCE_SHARE) if look.alive else _EARLY_SECONDS
    replaced: _Replaced | None = None
    read = look.growth if isinstance(look.growth, tuple) else None  # beside the program, which goes on
    source = look.source() if read is None else None
    if read is not None:
        raw, blocks, replaced = read
    elif source is None:
        return
    elif look.early and core.capture_counts()["events"] > _EVENTS_TOGETHER:
        reading = _Reading(core, source, patience)
        referrers.prepare()
        while not reading.is_done:
            yield
        raw, blocks, replaced = reading.take()
        while replaced is not None and replaced.is_behind():
            yield
    else:
        raw, blocks = _analysis(core, source, patience), None
    if raw is None:
        if not look.early:
            raise TimeoutError(f"reading the recording takes more than {patience:.1f} s")
        return
    reasons = _EARLY if look.early else UNDECIDED
    earlier = look.known if look.early else {}
    rows = [row for row in _growing(raw, reasons) if not _is_mostly_named(earlier.get(_key(row), ()))]
    waited = {} if look.early else _waited(raw)
    if not look.alive and not rows and not waited:
        return
    blocks = blocks or _Kept(raw)
    wants = [
        blocks.of(
            row["kind"],
            row["device"],
            row["count"],
            row["bytes"],
            row["first_step"],
            row["backward"],
            *blocks.made(row),
        )
        for row in rows
    ]
    if replaced is not None and (look.early or not replaced.is_behind()):
        replaced.put(rows, wants)
    is_short = look.early or read is not None  # the program waits
    if is_short:
        for want in wants:
            want.sample(_BLOCKS_EARLY // len(wants))
    alive = [(row, want) for row, want in zip(rows, wants, strict=True) if want.nodes or want.blocks]
    lines = blocks.largest_lines(_LINES if look.alive else 0, waited)
    error = None if look.early else sys.exc_info()[1] or refusals.ended_program()
    of_lines = [Want(blocks, whole=True) for _, _, blocks in lines]
    found = find([*(want for _, want in alive), *of_lines], error, is_short=is_short, look=look)
    look.finds_garbage = _is_garbage_much(raw, zip((device for _, device, _ in lines), of_lines, strict=True))

    def write() -> None:
        # Before those of leaks: a reader that does not know CM_HOLDER_ALIVE goes by the last ones of a stack.
        for (stack, device, _), want, holders in zip(lines, of_lines, found[len(alive) :], strict=True):
            if look.alive and not (look.goes_again and look.finds_garbage):
                _record(core, stack, _OF_ALIVE, device, holders)
            if not look.is_again:
                _record(core, stack, _OF_ALIVE, device, want.cycles)
        for (row, want), holders in zip(alive, found, strict=False):
            # What was found earlier counts on where most of it is gone by now.
            named = sum(one.bytes for one in holders if one.is_named)
            if _key(row) in look.known and 2 * named < row["bytes"]:
                continue
            if named > 0:
                look.known[_key(row)] = holders
            elif is_short:  # what it has not come to may have any name
                continue
            if look.early and _is_mostly_named(holders):
                core.mark(core.MARK_NAMED, row["stack"])
            if row["signature"] == "growing":
                core.mark(core.MARK_HELD, 2 * row["stack"] + want.by_variable)
            _record(core, row["stack"], _of(row), row["device"], holders)

        if not look.early:
            for row in rows:
                stacks = dict.fromkeys((row["stack"], *(part[2] for part in row["parts"])))
                keys = ((*_key(row)[:-1], stack) for stack in stacks)
                known = [one for key in keys for one in look.known.get(key, ())]
                _record_puts(core, row, known, blocks.files(row), time.time() - look.recorded)

    look.record(write)


def read_growth(core: Any, look: HolderSearch) -> tuple[Mapping[str, Any], _Kept, _Replaced] | bool | None:
    """The analysis that a search at the end of a window begins with, in another thread. False: nothing grows, and no
    collection has freed much. None: it would take too long."""
    source = look.source()
    raw = None if source is None else _analysis(core, source, _BESIDE_SECONDS)
    if raw is None:
        return None
    rows = list(_growing(raw, UNDECIDED))
    if source is None or not (rows or _waited(raw)):
        return False
    return raw, _Kept(raw), _Replaced(core, source[0], rows, _BESIDE_SECONDS)


def _is_mostly_named(holders: Sequence[Holder]) -> bool:
    """By bytes: then no later search of the loop looks for more."""
    named = sum(one.bytes for one in holders if one.is_named)
    return named > 0 and 2 * named >= sum(one.bytes for one in holders)


def _record_puts(
    core: Any, row: Mapping[str, Any], holders: Sequence[Holder], files: Collection[str], since: float
) -> None:
    """Which lines put what grows there: behind a tab, with the path of a holder that the trace has."""
    from cuptimem.record import keeping_line  # not in the slice of a search while the program runs

    paths = ((one.path, keeping_line.find(one.path, files, since)) for one in holders if one.is_named)
    put = [Holder(f"{path}\t{line}", 0, 0) for path, line in paths if line]
    _record(core, row["stack"], _of(row) | _MORE, row["device"], put)


def _record(core: Any, stack: int, of: int, device: str, holders: Sequence[Holder]) -> None:
    kind, _, index = device.partition(":")
    paths = [(one.path, one.count, one.bytes) for one in holders]
    core.holder(stack, of, _DEVICES.get(kind, _core.DEVICE_CPU), int(index or -1), paths)


def _analysis(core: Any, source: tuple[str, object, int], patience: float) -> Mapping[str, Any] | None:
    """The analysis of this source: no objects of the program's. None if it takes longer, of this thread's time."""
    deadline = time.thread_time() + patience
    is_late = False

    def in_time(share: float) -> bool:
        nonlocal is_late
        is_late = time.thread_time() >= deadline
        return not is_late

    try:
        found: Mapping[str, Any] = core.analyze(source[1], window=source[2], tables=("kept",), progress=in_time)
    except KeyboardInterrupt:
        if is_late:  # else it is the user's
            return None
        raise
    return found


class _Reading:
    """An analysis for an early search, in a thread of its own, which has the interpreter's lock only while it makes
    objects of the result. The program's thread does not wait for it."""

    def __init__(self, core: Any, source: tuple[str, object, int], patience: float) -> None:
        self.is_done = False
        self._found: tuple[Mapping[str, Any] | None, _Kept | None, _Replaced | None] = None, None, None
        self._error: Exception | None = None
        try:
            _thread.start_new_thread(self._read, (core, source, patience))
        except own(RuntimeError):  # no more threads; Python is ending
            self._read(core, source, patience)

    def _read(self, core: Any, source: tuple[str, object, int], patience: float) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            raw = _analysis(core, source, patience)
            rows = [] if raw is None else list(_growing(raw, _EARLY))
            if raw is not None:
                self._found = raw, _Kept(raw) if rows else None, _Replaced(core, source[0], rows, patience)
        except own(Exception) as error:
            self._error = error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self.is_done = True

    def take(self) -> tuple[Mapping[str, Any] | None, _Kept | None, _Replaced | None]:
        """The analysis, None: it would have taken too long; with its blocks, if anything grows, and what replaces them.
        Raises what it has raised."""
        if self._error is not None:
            raise self._error
        return self._found


class _Replaced:
    """What is alive now of sets that each step replaces by a larger one, as a list that is joined anew: the analysis,
    which another thread made, knows the blocks of a step before. None of this may lose the search."""

    def __init__(self, core: Any, path: str, rows: Iterable[Mapping[str, Any]], patience: float) -> None:
        """In the thread of the analysis."""
        self._core = core
        self._stacks = tuple(dict.fromkeys(part[2] for row in rows for part in row["parts"] if _is_replaced(row)))
        self._follower: Any = None
        self._tries = _TRIES
        if self._stacks:
            try:
                self._follower = core.Follower(path)
                if self._read(patience):
                    self._follower.blocks(*self._stacks)  # numbers all stacks, which takes longer than a slice may
                else:
                    self._follower = None
            except own(Exception):
                self._follower = None

    def _read(self, patience: float) -> bool:
        """Whether it has come to the end."""
        deadline = time.thread_time() + patience
        while (word := self._follower.read(_CAUGHT_UP)[0]) == "more":
            if time.thread_time() >= deadline:
                return False
        return bool(word == "end")

    def is_behind(self) -> bool:
        """Whether the program has done more since than one slice reads: the next one goes on."""
        if self._follower is None:
            return False
        try:
            self._core.capture_sync()
            word = self._follower.read(_CAUGHT_UP)[0]
        except own(Exception):
            word = ""
        self._tries -= 1
        if word != "end" and (word != "more" or self._tries == 0):
            self._follower = None
        return bool(word == "more" and self._follower is not None)

    def put(self, rows: Sequence[Mapping[str, Any]], wants: Sequence[Want]) -> None:
        """Into what is searched for."""
        if self._follower is None:
            return
        try:
            found = self._follower.blocks(*self._stacks)
        except own(Exception):
            return
        for row, want in zip(rows, wants, strict=True):
            if _is_replaced(row):
                stacks = {part[2] for part in row["parts"]}
                alive = [
                    (address, size)
                    for address, size, device, stack, backward in found
                    if stack in stacks and (device, backward) == (row["device"], row["backward"])
                ]
                if alive:
                    want.blocks, want.scale = alive, 1.0
                    want.sample(_BLOCKS)


def _is_replaced(row: Mapping[str, Any]) -> bool:
    return bool(row["signature"] == "growing" and row["kind"] != "nodes")


def _waited(raw: Mapping[str, Any]) -> dict[str, list[int]]:
    """Where collections have freed much beside what a device had at its peak: the stacks that made it, by device."""
    return {
        row["device"]: [one[2] for key in ("contributors", "freed_contributors") for one in row["garbage"][key]]
        for row in raw["devices"]
        if is_much(max(row["garbage"]["most"], row["garbage"]["at_peak"]), row["peak"])
    }


def _is_garbage_much(raw: Mapping[str, Any], wants: Iterable[tuple[str, Want]]) -> bool:
    waits: dict[str, int] = {}
    for device, want in wants:
        waits[device] = waits.get(device, 0) + sum(one.bytes for one in want.cycles)
    return any(is_much(waits.get(row["device"], 0), row["peak"]) for row in raw["devices"])


def _of(row: Mapping[str, Any]) -> int:
    return int(row["kind"] == "nodes") | (_OF_BACKWARD if row["backward"] else _OF_FORWARD)


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["kind"], row["device"], row["backward"], row["stack"]


def now(raw: Mapping[str, Any], of: Leak | Frame | str) -> tuple[Holder, ...]:
    """Who holds, now, a leak of a report, or what is alive of a line (a Frame, "train.py:22")."""
    blocks = _Kept(raw)
    if isinstance(of, Leak):
        stacks = [part.stack for part in of.parts]
        places = [tuple((one.file, one.function, one.line) for one in stack) for stack in stacks]
        lines = [_line(frame) for frame in map(user_frame, [*stacks, of.retained_at]) if frame is not None]
        want = blocks.of(of.kind, of.device, of.count, of.bytes, of.first_step, of.backward, places, lines)
    else:
        want = Want(blocks.at_line(_line(of) if isinstance(of, Frame) else of))
    return find([want])[0]


def _line(frame: Frame) -> _Line:
    return frame.file, frame.line


def _growing(raw: Mapping[str, Any], reasons: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """Verdicts, suspects of these reasons, and what stands under them."""
    for row in [*raw["leaks"], *(one for one in raw["suspects"] if one["reason"] in reasons)][:_LEAKS]:
        yield row
        yield from row["keeps"][:_KEPT]


class _Kept:
    """The live blocks of a recording by the stack that made them."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        named, code = cell_names.namer(), raw.get("code", "")
        users: dict[str, bool] = {}
        self._places: dict[int, _Places] = {}
        self._lines: dict[int, _Line | None] = {}
        self._files: dict[int, list[str]] = {}  # of the user's
        for stack, rows in raw["stacks"].items():
            self._places[stack] = tuple((named(row[0] or ""), row[1], row[2]) for row in rows)
            self._lines[stack] = None
            self._files[stack] = own_files = []
            for row, (file, _, line) in zip(rows, self._places[stack], strict=True):
                if file not in users:
                    users[file] = not _core.is_library(row[0] or "", code)
                if users[file]:
                    own_files.append(row[0] or "")
                    self._lines[stack] = self._lines[stack] or (file, line)
        self._by_stack: dict[tuple[str, bool, _Places], list[tuple[int, _Block]]] = {}  # with their steps
        self._by_line: dict[_Line | None, list[tuple[str, _Block]]] = {}
        self._stack_of: dict[_Line | None, int] = {}  # one that leads to the line
        for address, size, step, device, stack, backward in raw["kept_blocks"]:
            made = -1 if step is None else step
            key = device, backward, self._places.get(stack, ())
            self._by_stack.setdefault(key, []).append((made, (address, size)))
            of = self._lines.get(stack)
            self._by_line.setdefault(of, []).append((device, (address, size)))
            self._stack_of.setdefault(of, stack)

    def made(self, row: Mapping[str, Any]) -> tuple[list[_Places], list[_Line]]:
        """Where the blocks of a row of the core's leaks were made: stacks, and lines of the user's."""
        stacks = [part[2] for part in row["parts"]]
        lines = [self._lines.get(stack) for stack in (*stacks, row["retained"])]
        return [self._places.get(stack, ()) for stack in stacks], [line for line in lines if line is not None]

    def files(self, row: Mapping[str, Any]) -> list[str]:
        """The user's files that lead to a row of the core's leaks."""
        stacks = [row["retained"], *(part[2] for part in row["parts"])]
        return list(dict.fromkeys(file for stack in stacks for file in self._files.get(stack, ())))

    def of(
        self,
        kind: str,
        device: str,
        count: int,
        size: int,
        first: int,
        backward: bool,
        places: Iterable[_Places],
        lines: Iterable[_Line],
    ) -> Want:
        """first: the step in which the oldest was made; backward: whether all were made in backward. What else is
        charged to its lines (gradients) is no part of it."""
        on_lines = [one for line in dict.fromkeys(lines) for one in self._by_line.get(line, ())]
        if kind == "nodes":
            return Want([], count, size, {block[0] for _, block in on_lines})
        stacks = dict.fromkeys(one for one in places if one)
        if not stacks:  # what they were is not known
            return Want([block for where, block in on_lines if where == device])
        found = (made for one in stacks for made in self._by_stack.get((device, backward, one), ()))
        return Want([block for step, block in found if step >= first])

    def largest_lines(self, most: int, also: Mapping[str, Iterable[int]]) -> list[_Held]:
        """also: by device, stacks whose lines are among them whatever their size."""
        held: dict[tuple[_Line, str], list[_Block]] = {}
        for line, blocks in self._by_line.items():
            if line is not None:
                for device, block in blocks:
                    held.setdefault((line, device), []).append(block)
        sums = {key: sum(size for _, size in blocks) for key, blocks in held.items()}
        largest = sorted(held, key=lambda key: (-sums[key], key))[:most]
        others = ((line, device) for device, stacks in also.items() for line in map(self._lines.get, stacks))
        largest += [one for one in dict.fromkeys(others) if one in held and one not in largest]
        return [(self._stack_of[line], device, held[line, device]) for line, device in largest]

    def at_line(self, line: _Line | str) -> list[_Block]:
        if isinstance(line, str):
            file, _, number = line.rpartition(":")
            if not file or not number.isdecimal():
                raise ValueError(f"a line is written as train.py:22, not {line!r}")
            return [
                block
                for known, blocks in self._by_line.items()
                if known is not None and str(known[1]) == number and f"/{known[0]}".endswith(f"/{file}")
                for _, block in blocks
            ]
        return [block for _, block in self._by_line.get(line, ())]
