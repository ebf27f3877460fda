"""Programs of the driver level made by chance, and an independent model of what their ledgers must say.

The model knows every allocation as an object and adds everything up anew at each moment: slow, and nothing like the
analysis."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import craft
from craft import Trace

from tests import event_kinds

(DEV, MANAGED, HOST, REGISTERED, ASYNC, PHYSICAL, REFERENCE, IMPORTED, RESERVED, MAPPED, ARRAY, IPC, EXTERNAL, POOL) = (
    range(1, 15)
)
CONTEXT = 17
_NAMES = "device managed host registered async physical reference imported reserved mapped array ipc external pool"
NAMES = dict(enumerate(_NAMES.split(), 1))
LIBRARY, CORRELATION, STREAM, HANDLE, FAILED, UTILIZED = range(1, 7)
TOTAL, OWN, OTHERS, POOLED, KEPT, USED = range(1, 7)
QUIET, RELEASE = 0x80, 0x80
TAKES = {DEV, MANAGED, ASYNC, PHYSICAL, ARRAY}
IN_CONTEXT = {DEV, MANAGED, HOST, REGISTERED, ASYNC, ARRAY}
RECORDED = {DEV, MANAGED, HOST, ASYNC}
CUDA = {"device": craft.CUDA, "index": 0}
LIBRARIES = ["/usr/lib/libcublasLt.so.13", "/opt/libnccl.so.2", "/x/torch/lib/libc10_cuda.so", "libtorch_cuda.so"]


@dataclass(eq=False)
class Memory:
    """One driver allocation."""

    kind: int
    address: int
    size: int
    stack: int
    library: str = ""
    torch: bool = False
    pool: int = 0
    alive: bool = True
    references: int = 1
    shows: "Memory | None" = None
    segment: bool = False

    def make_torch(self) -> None:
        self.torch = True
        if self.shows is not None:
            self.shows.torch = True


@dataclass
class Block:
    address: int
    size: int
    asked: int
    home: Memory | None


@dataclass
class Moment:
    used: int
    quiet: bool
    others: int
    pooled: int
    context: int
    tensors: int
    rounding: int
    pages: int = 0  # of the driver's, less what was asked for of them
    live: list[Memory] = field(default_factory=list)


class Driver:
    """Emits a random program into a trace and keeps the model of it."""

    def __init__(self, seed: int, length: int, *, unwound: float = 0.5) -> None:
        self.random = random.Random(seed)
        self.unwound = unwound  # how many reservations say that PyTorch made them
        self.trace = Trace()
        self.on = 1  # thread of this step
        self.vacant: list[tuple[int, int]] = []  # addresses and sizes that were given back
        self.values: list[int] = []  # of handles that were released, mapped or not
        self.memory: list[Memory] = []
        self.blocks: dict[int, Block] = {}
        self.moments: list[Moment] = []
        self.context = -1
        self.allocations = self.frees = self.failed = self.unknown = 0
        self.peak = self.host_peak = 0
        self.correlation = 2**32 - 20  # it wraps on the way
        self.records: list[tuple[Any, ...]] = []  # to come
        self.matched = self.missing = 0
        self.top = 0x7F0000000000
        self.lines = [self.trace.line(n) for n in range(1, 6)]
        self.contexts = [0xC0]
        if self.random.random() < 0.7:
            self.add(event_kinds.DRIVER_NEW, 0xC0, 0, 0, flags=CONTEXT, **CUDA)
            self.made = True
        else:
            self.made = False
            self.contexts = []
        for _ in range(length):
            self.step()
        self.deliver(0)

    # --- the trace's side ---

    def add(self, *event: int, **more: int) -> None:
        self.trace.add(*event, **{"thread": self.on, **more})

    def more(self, what: int, value: int, name: int = 0) -> None:
        self.add(event_kinds.DRIVER_MORE, value, what, name)

    def told(self, kind: int, memory: Memory | None, address: int, release: bool) -> None:
        """The correlation id, and the record that comes later, if at all."""
        if (memory.kind if memory else kind or DEV) not in RECORDED:
            return
        self.correlation = (self.correlation + 1) % 2**32
        self.more(CORRELATION, self.correlation)
        if self.random.random() < 0.9:
            self.records.append((memory, address, release, self.correlation))
        else:
            self.missing += 1

    def deliver(self, keep: int) -> None:
        """Records come in their order, late, on the CUPTI thread."""
        while len(self.records) > keep:
            memory, address, release, correlation = self.records.pop(0)
            library = ""
            if memory is not None and not release and self.random.random() < 0.8:
                library = self.random.choice(LIBRARIES)
            name = self.trace.name(library) if library else 0
            size = memory.size if memory else 0
            flags = RELEASE if release else 0
            self.add(event_kinds.DRIVER_RECORD, address, size, name, flags=flags, thread=9, **CUDA)
            self.add(event_kinds.DRIVER_MORE, correlation, CORRELATION, thread=9)
            self.matched += 1
            if library:
                self.set_library(memory, library)

    def set_library(self, memory: Memory, library: str) -> None:
        memory.library = library
        if library.rpartition("/")[2].startswith(("libc10_cuda", "libtorch")):
            memory.make_torch()

    def new(self, kind: int, size: int, address: int = 0) -> Memory:
        if not address:
            address, size = self.place(kind, size)
        memory = Memory(kind, address, size, self.random.choice(self.lines))
        self.add(event_kinds.DRIVER_NEW, address, size, memory.stack, flags=kind, **CUDA)
        self.allocations += 1
        self.memory.append(memory)
        if self.random.random() < 0.3 and kind not in (MAPPED, RESERVED):
            library = self.random.choice(LIBRARIES[:2])
            self.more(LIBRARY, 0, self.trace.name(library))
            memory.library = library
        self.told(kind, memory, address, False)
        self.look()
        return memory

    def place(self, kind: int, size: int) -> tuple[int, int]:
        """Where it is; now and then where something was before, or under a value that was given back."""
        if kind == PHYSICAL and self.values and self.random.random() < 0.4:
            return self.values.pop(), size
        if kind in (DEV, MANAGED, ASYNC) and self.vacant and self.random.random() < 0.4:
            address, room = self.vacant.pop(self.random.randrange(len(self.vacant)))
            return address, min(size, room)
        address = self.top
        self.top += size + self.random.choice([511, 1 << 21]) & ~0x1FF
        return address, size

    def look(self) -> None:
        self.peak = max(self.peak, sum(m.size for m in self.live() if m.kind in TAKES))
        self.host_peak = max(self.host_peak, sum(m.size for m in self.live() if m.kind in (HOST, REGISTERED)))

    def live(self) -> list[Memory]:
        return [m for m in self.memory if m.alive]

    def of(self, *kinds: int) -> list[Memory]:
        return [m for m in self.live() if m.kind in kinds]

    def drop_handles(self) -> None:
        shown = {id(m.shows) for m in self.of(MAPPED)}
        for m in self.of(PHYSICAL, IMPORTED):
            if m.references == 0 and id(m) not in shown:
                m.alive = False

    def free(self, memory: Memory, *, kind: int) -> None:
        self.add(event_kinds.DRIVER_FREE, memory.address, 0, flags=kind, **CUDA)
        if self.random.random() < 0.1:
            self.more(FAILED, 1)
            self.failed += 1
            return
        self.frees += 1
        memory.alive = False
        if memory.kind in (DEV, MANAGED, ASYNC):
            self.vacant.append((memory.address, memory.size))
        self.told(kind, memory, memory.address, True)
        if memory.segment:
            self.add(event_kinds.SEGMENT_FREE, memory.address, device=craft.CUDA, index=-1)

    # --- what a program does ---

    def step(self) -> None:
        r = self.random
        self.on = r.choice([1, 1, 2, 3])
        actions = "plain free segment block drop expandable unmap release retain async moment unknown records reset"
        weights = [12, 14, 4, 20, 14, 5, 4, 5, 2, 8, 10, 1, 6, 0.3]
        getattr(self, "do_" + r.choices(actions.split(), weights)[0])()
        self.drop_handles()

    def do_plain(self) -> None:
        kind = self.random.choice([DEV, DEV, MANAGED, HOST, REGISTERED, ARRAY, PHYSICAL, IMPORTED])
        self.new(kind, self.random.randrange(1, 1 << 24))

    def do_free(self) -> None:
        found = [m for m in self.of(DEV, MANAGED, HOST, REGISTERED, ARRAY, ASYNC) if not self.blocks_in(m)]
        if found:
            memory = self.random.choice(found)
            vague = memory.kind in (DEV, MANAGED, ASYNC) and self.random.random() < 0.6
            self.free(memory, kind=0 if vague else memory.kind)

    def blocks_in(self, memory: Memory) -> list[Block]:
        return [b for b in self.blocks.values() if b.home is memory]

    def do_segment(self) -> None:
        memory = self.new(DEV, self.random.choice([2 << 20, 20 << 20]))
        self.add(event_kinds.SEGMENT_NEW, memory.address, memory.size, memory.stack, **CUDA)
        memory.make_torch()
        memory.segment = True

    def put_block(self, home: Memory, address: int, size: int, direct: bool = False) -> None:
        asked = size - self.random.choice([0, 0, self.random.randrange(size)])
        flags = craft.DIRECT if direct else 0
        self.add(event_kinds.ALLOC, address, size, self.random.choice(self.lines), flags=flags, **CUDA)
        if asked < size:
            self.add(event_kinds.REQUESTED, address, asked, **CUDA)
        self.blocks[address] = Block(address, size, asked, home)
        home.make_torch()
        for piece in self.of(MAPPED):
            if home.kind == RESERVED and home.address <= piece.address < home.address + home.size:
                piece.make_torch()

    def do_block(self) -> None:
        homes = [m for m in self.of(DEV, RESERVED) if m.torch or self.random.random() < 0.05]
        if not homes:
            return
        home = self.random.choice(homes)
        inside = sorted((b.address, b.address + b.size) for b in self.blocks_in(home))
        at, end = home.address, home.address + home.size
        gaps = []
        for first, last in [*inside, (end, end)]:
            if first > at:
                gaps.append((at, first))
            at = last
        if gaps:
            first, last = self.random.choice(gaps)
            size = min(last - first, self.random.choice([512, 1 << 20, 3 << 20]))
            self.put_block(home, first, size)

    def do_drop(self) -> None:
        if self.blocks:
            address = self.random.choice(list(self.blocks))
            self.add(event_kinds.FREE, address, **CUDA)
            del self.blocks[address]

    def do_async(self) -> None:
        memory = self.new(ASYNC, self.random.randrange(512, 1 << 22))
        if self.random.random() < 0.3:
            memory.pool = 0xB00
            self.more(HANDLE, 0xB00)
        if self.random.random() < 0.6:
            self.put_block(memory, memory.address, memory.size)

    def do_expandable(self) -> None:
        homes = self.of(RESERVED)
        if not homes or self.random.random() < 0.3:
            fresh = self.new(RESERVED, 64 << 20)
            if self.random.random() < self.unwound:
                self.more(LIBRARY, 0, self.trace.name(LIBRARIES[2]))
                self.set_library(fresh, LIBRARIES[2])
            return
        home = self.random.choice(homes)
        pieces = [m for m in self.of(MAPPED) if home.address <= m.address < home.address + home.size]
        at = max((m.address + m.size for m in pieces), default=home.address)
        size = self.random.choice([2 << 20, 20 << 20])
        if at + size > home.address + home.size:
            return
        handles = [m for m in self.of(PHYSICAL) if m.references > 0]
        again = handles and self.random.random() < 0.1
        handle = self.random.choice(handles) if again else self.new(PHYSICAL, size)
        piece = self.new(MAPPED, size, at)
        self.more(HANDLE, handle.address)
        piece.shows = handle
        if home.torch:
            piece.make_torch()

    def do_unmap(self) -> None:
        pieces = self.of(MAPPED)
        if not pieces:
            return
        piece = self.random.choice(pieces)
        first, last = piece.address, piece.address + piece.size
        if self.random.random() < 0.3:  # a part of it
            middle = first + (piece.size // 2 & ~0xFFF)
            first, last = self.random.choice([(first, middle), (middle, last), (middle - 4096, middle)])
        if first >= last or first < piece.address:
            return
        self.add(event_kinds.DRIVER_FREE, first, last - first, flags=MAPPED, **CUDA)
        if self.random.random() < 0.2:
            self.more(FAILED, 1)
            self.failed += 1
            # The mapping is the same; that it is told in pieces now is nobody's business but the count's.
            parts = [(piece.address, first), (first, last), (last, piece.address + piece.size)]
        else:
            self.frees += 1
            parts = [(piece.address, first), (last, piece.address + piece.size)]
        piece.alive = False
        for begin, end in parts:
            if end > begin:
                part = Memory(MAPPED, begin, end - begin, piece.stack, piece.library, piece.torch, shows=piece.shows)
                self.memory.append(part)

    def do_release(self) -> None:
        handles = [m for m in self.of(PHYSICAL, IMPORTED) if m.references > 0]
        if not handles:
            return
        handle = self.random.choice(handles)
        kind = self.random.choice([handle.kind, REFERENCE, PHYSICAL])
        self.add(event_kinds.DRIVER_FREE, handle.address, 0, flags=kind, **CUDA)
        if self.random.random() < 0.2:
            self.more(FAILED, 1)
            self.failed += 1
        else:
            self.frees += 1
            handle.references -= 1
            if handle.references == 0:
                self.values.append(handle.address)

    def do_retain(self) -> None:
        handles = [m for m in self.of(PHYSICAL) if m.references > 0]
        if handles:
            handle = self.random.choice(handles)
            self.add(event_kinds.DRIVER_NEW, handle.address, 0, 0, flags=REFERENCE, **CUDA)
            self.allocations += 1
            handle.references += 1

    def do_unknown(self) -> None:
        self.add(event_kinds.DRIVER_FREE, 0x1234000, 0, flags=self.random.choice([0, ASYNC, HOST]), **CUDA)
        self.frees += 1
        self.unknown += 1
        self.told(0, None, 0x1234000, True)

    def do_records(self) -> None:
        self.deliver(self.random.randrange(0, 10))

    def do_reset(self) -> None:
        """The device's only context ends."""
        if not self.contexts or self.blocks:
            return
        self.add(event_kinds.DRIVER_FREE, 0xC0, 0, flags=CONTEXT, **CUDA)
        if self.random.random() < 0.5:
            self.more(FAILED, 1)
            self.failed += 1
            return
        self.contexts = []
        for m in self.of(*IN_CONTEXT):
            m.alive = False
            if m.segment:
                self.add(event_kinds.SEGMENT_FREE, m.address, device=craft.CUDA, index=-1)

    # --- moments ---

    def do_moment(self) -> None:
        r = self.random
        live = self.live()
        taken = sum(m.size for m in live if m.kind in TAKES)
        others = r.choice([-1, 0, 10_000])
        pooled = r.choice([-1, r.randrange(1 << 24)])
        quiet = r.random() < 0.6
        used = taken + r.randrange(1 << 24)
        for what, value in [(TOTAL, 1 << 36), (OTHERS, others), (POOLED, pooled)]:
            if value >= 0:
                self.add(event_kinds.DEVICE, what, value, thread=9, **CUDA)
        self.add(event_kinds.DEVICE, USED, used, flags=QUIET if quiet else 0, thread=9, **CUDA)
        moment = Moment(used, quiet, others, pooled, 0, 0, 0, live=live)
        counted = [b for b in self.blocks.values() if b.home is not None and b.home.alive]
        moment.tensors = sum(b.asked for b in counted)
        moment.rounding = sum(b.size - b.asked for b in counted)
        carved = [m for m in live if m.kind in (DEV, MANAGED)]
        touched = {page for m in carved for page in range(m.address >> 21, (m.address + m.size - 1 >> 21) + 1)}
        moment.pages = (len(touched) << 21) - sum(m.size for m in carved)
        if quiet and self.context < 0:
            self.context = max(0, used - max(0, others) - taken - self.slack(moment)[0] - moment.pages)
        moment.context = self.context
        self.moments.append(moment)

    @staticmethod
    def slack(moment: Moment) -> tuple[int, int]:
        if moment.pooled < 0:
            return 0, 0
        own = sum(m.size for m in moment.live if m.kind == ASYNC and not m.pool)
        return max(0, moment.pooled - own), max(0, own - moment.pooled)

    # --- answers ---

    def ledger(self, moment: Moment) -> dict[str, Any]:
        takes = [m for m in moment.live if m.kind in TAKES]
        torch = sum(m.size for m in takes if m.torch)
        bytes_of: Counter[tuple[str, str, int]] = Counter()
        count_of: Counter[tuple[str, str, int]] = Counter()
        for m in takes:
            if not m.torch:
                key = (NAMES[m.kind], m.library, m.stack)
                bytes_of[key] += m.size
                count_of[key] += 1
        slack, short = self.slack(moment)
        return {
            "used": moment.used,
            "quiet": moment.quiet,
            "others": None if moment.others < 0 else moment.others,
            "tensors": moment.tensors,
            "rounding": moment.rounding,
            "cached": max(0, torch - moment.tensors - moment.rounding),
            "driver_rounding": moment.pages,
            "pool_slack": slack,
            "pool_short": short,
            "context": None if moment.context < 0 else moment.context,
            "driver": {key: (bytes_of[key], count_of[key]) for key in bytes_of},
        }

    def kept(self) -> dict[str, Moment]:
        if not self.moments:
            return {}
        quiet = [m for m in self.moments if m.quiet]
        return {"peak": max(quiet or self.moments, key=lambda m: m.used), "end": self.moments[-1]}

    def lines_alive(self, *, host: bool) -> dict[tuple[str, str, int, bool], tuple[int, int]]:
        found: dict[tuple[str, str, int, bool], tuple[int, int]] = {}
        for m in self.live():
            if (m.kind in (HOST, REGISTERED)) is host:
                key = (NAMES[m.kind], m.library, m.stack, m.torch)
                size, count = found.get(key, (0, 0))
                found[key] = (size + m.size, count + 1)
        return found
