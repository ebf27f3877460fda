"""Is the driver level one to one with what the simulated device gave out and took back?

A pure function of events (driver_events) and log records (device_log). Each address, handle or range has a history of
its own: what was recorded must be what the device did, in that order, with these sizes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.on_device.simulated.device_log import Record
from tests.on_device.simulated.driver_events import Event

Step = tuple[str, int]  # "new" or "free", bytes
Key = tuple[str, int]  # what it is, address or handle
Live = dict[Key, tuple[int, int]]  # device, bytes

MEMORY, BLOCK, HANDLE, MAPPING, ARRAY = "memory", "pool block", "handle", "mapping", "array"
_SPACES = {
    "device": MEMORY,
    "managed": MEMORY,
    "async": BLOCK,
    "graph": BLOCK,
    "host": "host",
    "registered": "registered",
    "physical": HANDLE,
    "reference": HANDLE,
    "reserved": "range",
    "mapped": MAPPING,
    "array": ARRAY,
}
_OPS = {
    "create": (HANDLE, "new"),
    "destroy": (HANDLE, "free"),
    "reserve": ("range", "new"),
    "unreserve": ("range", "free"),
    "map": (MAPPING, "new"),
    "unmap": (MAPPING, "free"),
    "pool alloc": (BLOCK, "new"),
    "pool free": (BLOCK, "free"),
    "host alloc": ("host", "new"),
    "host free": ("host", "free"),
    "host register": ("registered", "new"),
    "host unregister": ("registered", "free"),
}
# A mapping's memory is its handle's, and a block's its pool's.
_OF_THE_DEVICE = (MEMORY, HANDLE, ARRAY)
_IN_CONTEXTS = (MEMORY, BLOCK, ARRAY)


@dataclass
class Match:
    """events, records: how many of each kind were compared, so that nothing passes unseen. differ: one line each."""

    events: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    differ: list[str] = field(default_factory=list)
    live: Live = field(default_factory=dict)
    """At the end, as recorded."""

    def bytes(self, device: int) -> int:
        """Of that device, given out and not taken back, without what its pools hold."""
        return sum(n for (space, _), (where, n) in self.live.items() if where == device and space in _OF_THE_DEVICE)


def match(events: Iterable[Event], log: Sequence[Record], *, since: int = 0) -> Match:
    """since: the time (of the log) at which recording began; what was given out before may be taken back after."""
    before, after = _Device(), _Device()
    for record in log:
        (before if record.time < since else after).take(record)
    ours = _Recorded(before.live)
    for event in events:
        ours.take(event)
    found = Match(ours.counts, after.counts, ours.differ, ours.live)
    for key in sorted({*ours.steps, *after.steps}):
        if ours.steps[key] != after.steps[key]:
            found.differ.append(f"{key[0]} {key[1]:#x}{_first(ours.steps[key], after.steps[key])}")
    made, seen, there = ours.counts["context"], ours.counts["context found"], before.counts["context"]
    if made > after.counts["context"] or made + seen > there + after.counts["context"]:
        found.differ.append(
            f"contexts: {made} recorded, {seen} found, the device {after.counts['context']} and {there}"
        )
    elif not before.counts and made + seen < after.counts["context"]:
        found.differ.append(f"contexts: {made} recorded, {seen} found, the device {after.counts['context']}")
    if ours.counts["context gone"] != after.counts["context end"]:
        found.differ.append(
            f"context ends: recorded {ours.counts['context gone']}, the device {after.counts['context end']}"
        )
    return found


def _first(mine: Sequence[Step], other: Sequence[Step]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), min(len(mine), len(other)))
    shown = [f"{steps[at][0]} of {steps[at][1]} bytes" if at < len(steps) else "nothing" for steps in (mine, other)]
    return f", step {at}: recorded {shown[0]}, the device {shown[1]}"


class _Device:
    """What the log says."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.steps: dict[Key, list[Step]] = defaultdict(list)
        self.live: Live = {}

    def take(self, record: Record) -> None:
        if record.op in ("refused", "limited"):
            return
        if record.op in ("context", "context end"):
            self.counts[record.op] += 1
            return
        if record.op in ("alloc", "free"):
            if record.kind == "pool":  # between a pool and its device: programs have its blocks
                return
            space = ARRAY if record.kind == "array" else MEMORY
            action = "new" if record.op == "alloc" else "free"
        else:
            space, action = _OPS[record.op]
        self.counts[space] += 1
        key = space, record.address
        self.steps[key].append((action, record.bytes))
        if action == "new":
            self.live[key] = record.device, record.bytes
        else:
            self.live.pop(key, None)


class _Recorded:
    """What the events say. Physical memory lives until its references are released and it is mapped nowhere."""

    def __init__(self, before: Live) -> None:
        self.counts: Counter[str] = Counter()
        self.differ: list[str] = []
        self.steps: dict[Key, list[Step]] = defaultdict(list)
        self.live: Live = dict(before)
        self.references: Counter[int] = Counter(address for space, address in before if space == HANDLE)
        self.maps: Counter[int] = Counter()
        self.contexts: dict[int, int] = {}
        """Context -> device."""
        self.behind: dict[int, int] = {}
        """Mapping -> handle."""

    def take(self, event: Event) -> None:
        if event.failed:
            self.counts["failed"] += 1
        elif event.new and event.kind == "context" and event.already:
            self.counts["context found"] += 1
        elif event.new:
            self.counts[event.kind] += 1
            self._new(event)
        elif event.kind == "mapped":
            self._unmap(event)
        elif event.kind in ("context", "pool"):
            self.counts[f"{event.kind} gone"] += 1
            if event.kind == "context":
                self._end_context(event)
        else:
            self._free(event)

    def _new(self, event: Event) -> None:
        if event.kind == "context":
            self.contexts[event.address] = event.device
        if event.kind in ("context", "pool"):  # of no size of their own
            return
        if event.kind == "reference":
            self.references[event.address] += 1
            return
        if event.kind not in _SPACES:
            self.differ.append(f"{event.kind} {event.address:#x} was recorded, which the device's log does not have")
            return
        key = _SPACES[event.kind], event.address
        if key in self.live:
            self.differ.append(f"{key[0]} {event.address:#x} was recorded as given out twice")
        self.live[key] = event.device, event.size
        self.steps[key].append(("new", event.size))
        if event.kind == "physical":
            self.references[event.address] += 1
        elif event.kind == "mapped":
            self.behind[event.address] = event.handle
            self.maps[event.handle] += 1

    def _end(self, key: Key) -> None:
        self.steps[key].append(("free", self.live.pop(key)[1]))

    def _settle(self, handle: int) -> None:
        if (HANDLE, handle) in self.live and self.references[handle] <= 0 and self.maps[handle] <= 0:
            self._end((HANDLE, handle))

    def _end_context(self, event: Event) -> None:
        """With a device's last one goes what lives in contexts; no event tells what lives in which."""
        device = self.contexts.pop(event.address, event.device)
        if device not in self.contexts.values():
            for key in [key for key in self.live if key[0] in _IN_CONTEXTS and self.live[key][0] == device]:
                self._end(key)

    def _unmap(self, event: Event) -> None:
        """One call takes away all mappings that lie in its range."""
        end = event.address + max(event.size, 1)
        inside = sorted(key for key in self.live if key[0] == MAPPING and event.address <= key[1] < end)
        covered = sum(self.live[key][1] for key in inside)
        if covered != event.size:
            self.differ.append(f"{event.size} bytes unmapped at {event.address:#x}, where {covered} were mapped")
        for key in inside:
            self.counts["free"] += 1
            self._end(key)
            handle = self.behind.pop(key[1], 0)
            self.maps[handle] -= 1
            self._settle(handle)

    def _free(self, event: Event) -> None:
        key = self._which(event)
        if key is None:
            self.counts["unknown free"] += 1
            self.differ.append(f"a free of {event.kind or 'something'} {event.address:#x}, which nobody was given")
            return
        self.counts["free"] += 1
        if key[0] == HANDLE:
            self.references[event.address] -= 1
            self._settle(event.address)
            return
        if event.size >= 0 and event.size != self.live[key][1]:
            self.differ.append(f"{key[0]} {key[1]:#x} of {self.live[key][1]} bytes was freed with {event.size}")
        self._end(key)

    def _which(self, event: Event) -> Key | None:
        """cudaFree takes back what cudaMallocAsync gave, and the other way round."""
        known = _SPACES.get(event.kind, "")
        spaces = [known] if known else [MEMORY, BLOCK, "host", "registered", ARRAY]
        if known in (MEMORY, BLOCK):
            spaces = [MEMORY, BLOCK]
        return next(((space, event.address) for space in spaces if (space, event.address) in self.live), None)
