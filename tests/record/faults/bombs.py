"""Traces that are small and ask for much: depth, fan-out, one thing that all refer to, thousands of each kind.

`python -m tests.record.faults.bombs FOLDER [COUNT]` writes them."""

import sys
from collections.abc import Callable
from pathlib import Path

from tests import event_kinds
from tests.record.faults import rings
from tests.record.faults.traces import FINAL_BEGIN, FINAL_END, WALK, craft, tracelib
from tests.tools.fuzz.seeds import with_side

META = {"nodes": "counted"}
TABLE = bytes([0x80 | 14 << 3, 0, 0, 5, 10])  # one line, columns 4 to 9
FILLING = 9  # cm_mark_kind


class Raw(craft.Trace):
    """A craft.Trace with definitions by number: strings, codes and stacks that the caller counts."""

    def define(self, *records: bytes) -> None:
        self.definitions += b"".join(records)


CUDA = {"device": craft.CUDA, "index": 0}
CRAFTED: dict[str, Callable[[int], Raw]] = {}


def bomb(fill: Callable[[Raw, int], None]) -> Callable[[int], Raw]:
    """What fills a trace with about n items, by its name."""

    def make(n: int) -> Raw:
        t = Raw()
        fill(t, n)
        return t

    CRAFTED[fill.__name__] = make
    return make


def _one_code(t: Raw, file: str = "train.py", function: str = "main", table: bytes = TABLE) -> None:
    t.define(tracelib.define_string(file), tracelib.define_string(function), tracelib.define_code(1, 2, 1, table))


def chain(t: Raw, depth: int) -> None:
    """Stacks 2 to depth + 1, each the child of the one before."""
    t.define(tracelib.define_stack(0, 1, 0), *(tracelib.define_stack(parent, 1, 0) for parent in range(2, depth + 1)))


@bomb
def deep(t: Raw, n: int) -> None:
    """One chain; blocks at its end."""
    _one_code(t)
    chain(t, n)
    t.alloc(0x1000, 64, n + 1)


@bomb
def deep_each(t: Raw, n: int) -> None:
    """One chain; every link of it allocates a block that stays: n stacks of n / 2 frames."""
    _one_code(t)
    chain(t, n)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)


@bomb
def deep_steps(t: Raw, n: int) -> None:
    """The same, in steps: each is a leak, a survivor, a tick's stack."""
    _one_code(t)
    chain(t, n)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.tick(craft.OPTIMIZER, 0x88, i + 2)


@bomb
def deep_nodes(t: Raw, n: int) -> None:
    """The same, with graph nodes that are made at each link and run in backward."""
    _one_code(t)
    chain(t, n)
    for i in range(n):
        t.node(i, i + 2)
    for i in range(n):
        t.run(i, 1)
        t.alloc(0x1000 + 64 * i, 64, 2, flags=craft.IN_NODE | craft.NODE_STACK)
        t.done()
        t.tick(craft.OPTIMIZER, 0x88, 2)


@bomb
def torch_chain(t: Raw, n: int) -> None:
    """The same inside PyTorch's files: what searches outwards for the user's line."""
    _one_code(t, craft.TORCH + "nn/functional.py")
    chain(t, n)
    for i in range(n):
        t.node(i, n + 1 - i % 2)
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.tick(craft.OPTIMIZER, 0x88, i + 2)


@bomb
def wide(t: Raw, n: int) -> None:
    """n children of one stack, each with a block."""
    _one_code(t)
    t.define(tracelib.define_stack(0, 1, 0), *(tracelib.define_stack(2, 1, i) for i in range(n)))
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 3)
        if i % 8 == 0:
            t.tick(craft.OPTIMIZER, 0x88, i + 3)


@bomb
def modules(t: Raw, n: int) -> None:
    """A chain of module calls, each of another module."""
    _one_code(t)
    t.define(tracelib.define_string("M" * 200), tracelib.define_stack(0, 1, 0, 0, 1, 3))
    t.define(*(tracelib.define_stack(parent, 1, 0, 0, parent, 3) for parent in range(2, n + 1)))
    for i in range(n):
        t.add(event_kinds.OBJECT_NEW, i + 1, 1, t.name("M" * 200))
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.tick(craft.MODULE, i + 1, i + 2)


@bomb
def long_table(t: Raw, n: int) -> None:
    """One code with a location table of n entries, asked at n of its offsets."""
    _one_code(t, table=TABLE * n)
    t.define(*(tracelib.define_stack(0, 1, n - 1 - i % 7) for i in range(n)))
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)


@bomb
def long_names(t: Raw, n: int) -> None:
    """A file, a function, a class, an operator and a label of n characters, which n blocks refer to."""
    text = "x" * n
    _one_code(t, text, text)
    t.define(tracelib.define_string(text), *(tracelib.define_stack(0, 1, 0, 0, 7 + i, 3) for i in range(n)))
    name = t.name(text)
    t.mark(WALK)
    for i in range(n):
        t.add(event_kinds.LABEL, 0x1000 + 64 * i, 7 + i, name, flags=2)
        t.add(event_kinds.OBJECT_NEW, 7 + i, 1, name)
        t.add(event_kinds.OPERATOR, stack=name)
        t.run(i, 1, text)
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.done()
        t.tick(craft.OPTIMIZER, 0x88, i + 2)


@bomb
def threads(t: Raw, n: int) -> None:
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.THREAD, i, i, thread=i * 7919)
        t.alloc(0x1000 + 64 * i, 64, stack, thread=i * 7919)
        t.tick(craft.BACKWARD, i, stack, thread=i * 7919)


@bomb
def devices(t: Raw, n: int) -> None:
    """As many devices as there may be, and n blocks on them."""
    stack = t.line(1)
    for i in range(n):
        where = {"device": i % 2, "index": i // 2 % 128}
        t.alloc(0x1000 + 64 * i, 64, stack, **where)
        t.add(event_kinds.RESERVED, 1 << 20, 2 << 20, **where)
        t.add(event_kinds.OOM, 0, 1 << 40, stack, **where)
        if i % 16 == 0:
            t.tick(craft.OPTIMIZER, 0x88, stack)


@bomb
def clocks(t: Raw, n: int) -> None:
    """Ticks of n objects on n threads: a loop for each."""
    stacks = [t.line(i + 1) for i in range(64)]
    for i in range(n):
        for kind in range(1, 6):
            t.tick(kind, i, stacks[i % 64], thread=i)
    for i in range(n):
        for kind in range(1, 6):
            t.tick(kind, i, stacks[i % 64], thread=i)


@bomb
def steps(t: Raw, n: int) -> None:
    stack = t.line(1)
    for _ in range(n):
        t.tick(craft.STEP, 1, stack)


@bomb
def windows(t: Raw, n: int) -> None:
    """n windows, all open at once."""
    stack = t.line(1)
    for i in range(n):
        t.mark(craft.WINDOW_OPEN, i + 1)
        t.alloc(0x1000 + 64 * i, 64, stack)
        t.tick(craft.STEP, 1, stack)
    for i in range(n):
        t.mark(craft.WINDOW_CLOSE, i + 1)


@bomb
def leaks(t: Raw, n: int) -> None:
    """n lines that leak in each of 20 steps."""
    lines = [t.line(i + 1) for i in range(n // 20)]
    tick = t.line(999_999)
    for step in range(20):
        for i, line in enumerate(lines):
            t.alloc(0x1000 + 64 * (step * len(lines) + i), 64, line)
        t.tick(craft.OPTIMIZER, 0x88, tick)
    t.mark(FINAL_BEGIN, 1)
    t.mark(FINAL_END)
    for line in lines:
        t.add(event_kinds.HOLDER, 0, 0, line, flags=2)
        t.add(event_kinds.HOLDER_PATH, 20, 1280, t.name("kept[0]"))


@bomb
def node_leaks(t: Raw, n: int) -> None:
    """n lines with graph nodes that no backward runs, in 20 steps."""
    lines = [t.line(i + 1) for i in range(n // 20)]
    tick = t.line(999_999)
    for step in range(20):
        for i, line in enumerate(lines):
            t.node(step * len(lines) + i, line)
            t.alloc(0x1000 + 64 * (step * len(lines) + i), 64, line)
        t.tick(craft.OPTIMIZER, 0x88, tick)


@bomb
def holders(t: Raw, n: int) -> None:
    """n paths of one leak, and of one text."""
    line, tick, text = t.line(1), t.line(2), t.name("x" * n)
    for step in range(20):
        t.alloc(0x1000 + 64 * step, 64, line)
        t.tick(craft.OPTIMIZER, 0x88, tick)
    t.mark(FINAL_BEGIN, 1)
    t.mark(FINAL_END)
    for _ in range(n):
        t.add(event_kinds.HOLDER, 0, 0, line, flags=0)
        t.add(event_kinds.HOLDER_PATH, 20, 1280, text)


@bomb
def labels(t: Raw, n: int) -> None:
    """Modules that own each other in a circle, and tensors of them."""
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x100000 + 64 * i, 64, stack)
    for _ in range(3):
        t.mark(WALK)
        for i in range(n):
            t.add(event_kinds.LABEL, 0x10 + i, 0x10 + (i + 1) % n, t.name(f"m{i}\t"), flags=1)
            t.add(
                event_kinds.LABEL,
                0x100000 + 64 * i,
                0x10 + i,
                t.name("w" * 100 + "\tfloat32 " + "1 " * 50),
                flags=2 + i % 5,
            )
        t.tick(craft.OPTIMIZER, 0x88, stack)


@bomb
def ooms(t: Raw, n: int) -> None:
    """n blocks alive, and n requests that are refused: each has a list of what is alive."""
    stacks = [t.line(i + 1) for i in range(n)]
    t.add(event_kinds.SEGMENT_NEW, 0x7F0000000000, 1 << 30, stacks[0], **CUDA)
    for i in range(n):
        t.alloc(0x7F0000000000 + 1024 * i, 512, stacks[i], **CUDA)
    for i in range(n):
        t.add(event_kinds.OOM, 1, 1 << 40, stacks[i], **CUDA)


@bomb
def segments(t: Raw, n: int) -> None:
    """n segments with holes, taken and given back while others are alive."""
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.SEGMENT_NEW, 0x7F0000000000 + i * 0x200000, 0x200000, stack, **CUDA)
        t.alloc(0x7F0000000000 + i * 0x200000 + 0x1000, 512, stack, **CUDA)
        t.add(event_kinds.RESERVED, 512 * i, 0x200000 * i, **CUDA)
    for i in range(n):
        t.free(0x7F0000000000 + i * 0x200000 + 0x1000, **CUDA)
        t.add(event_kinds.SEGMENT_FREE, 0x7F0000000000 + i * 0x200000, **CUDA)
        t.add(event_kinds.OOM, 1, 1 << 40, stack, **CUDA)


@bomb
def overlapping(t: Raw, n: int) -> None:
    """Segments, driver allocations and mappings that overlap all others."""
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.SEGMENT_NEW, 0x1000 + i, 1 << 40, stack, **CUDA)
        t.alloc(0x1000 + i, 1 << 40, stack, **CUDA)
        t.add(event_kinds.DRIVER_NEW, 0x1000 + i * 4096, 1 << 40, stack, flags=1 + i % 17, **CUDA)
        t.add(event_kinds.DRIVER_MORE, 7 + i % 3, 4)
        t.add(event_kinds.DRIVER_NEW, 0x1000 + (n - i) * 4096, 1 << 40, stack, flags=10, **CUDA)
        t.add(event_kinds.DRIVER_MORE, 7 + i % 3, 4)
        t.add(event_kinds.DEFERRED_FREE, i, **CUDA)
    for i in range(n):
        t.add(event_kinds.DRIVER_FREE, 0x1000 + i * 4096, 1 << 39, flags=10, **CUDA)
        t.add(event_kinds.DRIVER_FREE, 0x1000 + i * 4096, flags=1 + i % 17, **CUDA)


@bomb
def contexts(t: Raw, n: int) -> None:
    """Contexts that each end all that lives."""
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.DRIVER_NEW, 0xC0 + i, 0, 0, flags=17, **CUDA)
        t.add(event_kinds.DRIVER_NEW, 0x100000 + i * 4096, 4096, stack, flags=1, **CUDA)
    for i in range(n):
        t.add(event_kinds.DRIVER_FREE, 0xC0 + i, flags=17, **CUDA)
        t.add(event_kinds.DRIVER_NEW, 0xC0 + i, 0, 0, flags=17, **CUDA)


@bomb
def handles(t: Raw, n: int) -> None:
    """One physical handle with n references and n mappings, then released n times."""
    stack = t.line(1)
    t.add(event_kinds.DRIVER_NEW, 7, 1 << 21, stack, flags=6, **CUDA)
    for i in range(n):
        t.add(event_kinds.DRIVER_NEW, 7, 1 << 21, stack, flags=7, **CUDA)
        t.add(event_kinds.DRIVER_NEW, 0x400000 + (i << 21), 1 << 21, stack, flags=10, **CUDA)
        t.add(event_kinds.DRIVER_MORE, 7, 4)
    for i in range(n):
        t.add(event_kinds.DRIVER_FREE, 7, flags=6, **CUDA)
        t.add(event_kinds.DRIVER_FREE, 0x400000 + (i << 21), 1 << 21, flags=10, **CUDA)


@bomb
def records(t: Raw, n: int) -> None:
    """Activity records that never find their allocation, and allocations without record, all of one number."""
    stack = t.line(1)
    name = t.name("/lib/" + "x" * 200)
    for i in range(n):
        t.add(event_kinds.DRIVER_RECORD, 0x9000000 + i, 1 << 20, name, thread=9, **CUDA)
        t.add(event_kinds.DRIVER_MORE, 5, 2, thread=9)
        t.add(event_kinds.DRIVER_NEW, 0x9000000 + i + 1, 1 << 20, stack, flags=5, **CUDA)
        t.add(event_kinds.DRIVER_MORE, 6, 2)
        t.add(event_kinds.DRIVER_FREE, 0x9000000 + i + 1, flags=5, **CUDA)
        t.add(event_kinds.DRIVER_MORE, 5, 2)


@bomb
def kernels(t: Raw, n: int) -> None:
    """Launches and work with one number, and with numbers that never meet."""
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack, **CUDA)
        t.add(event_kinds.LAUNCH, i, 1 if i % 2 else i, stack, flags=1, **CUDA)
        t.add(event_kinds.WORK, 1 if i % 3 else n + i, 5000, t.name(f"k{i}"), flags=1, thread=9)
        t.free(0x1000 + 64 * i, **CUDA)


@bomb
def pools(t: Raw, n: int) -> None:
    for i in range(n):
        t.add(event_kinds.POOL, i, 1 << 25, flags=1 + i % 4, thread=9, **CUDA)
        for told in (1, 2, 3, 4, 5, 6):
            t.add(event_kinds.DEVICE, told, (1 << 34) + i, flags=0x80, thread=9, **CUDA)


@bomb
def never_ends(t: Raw, n: int) -> None:
    """Nodes that begin inside of each other and never end; every block is in all of them."""
    stack = t.line(1)
    for i in range(n):
        t.node(i, stack)
        t.run(i, 1)
        t.alloc(0x1000 + 64 * i, 64, stack, flags=craft.IN_NODE | craft.NODE_STACK)
        t.add(event_kinds.OPERATOR, stack=t.name(f"op{i}"))
        t.mark(FILLING, 0)
        t.mark(FILLING, 0x1000 + 64 * i)
        t.mark(5, 2)


@bomb
def same_address(t: Raw, n: int) -> None:
    """One address that is given out again and again without a free, and freed more often than given out."""
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000, 64 + i, stack)
        t.add(event_kinds.REQUESTED, 0x1000, 1)
        t.free(0x1000)
        t.free(0x1000)
        t.add(event_kinds.SEED, 0x2000, 64)
        t.node(1, stack)
        t.add(event_kinds.NODE_FREE, 1, 1)
        t.add(event_kinds.NODE_FREE, 1, 1)


@bomb
def times(t: Raw, n: int) -> None:
    """Times that go back and forth by the whole range."""
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack, after=(1 << 50) if i % 2 else -(1 << 50) + 1024)
        if i % 4 == 0:
            t.tick(craft.OPTIMIZER, 0x88, stack)


@bomb
def collisions(t: Raw, n: int) -> None:
    """Stacks and blocks at addresses with one low half: what a weak hash puts into one slot."""
    stack = t.line(1)
    for i in range(n):
        t.alloc(i << 32, 64, stack)
        t.node(i << 32, stack)
        t.add(event_kinds.LABEL, i << 48, i << 32, t.name("m\t"), flags=2)
        t.tick(craft.MODULE, i << 32, stack)


def of_one_slot(n: int) -> list[int]:
    """n addresses that the analysis's fixed hash (cm_mix of csrc/base/grow.h) puts into slot 0 of any table."""
    inverse, mask = pow(0x9E3779B97F4A7C15, -1, 1 << 64), (1 << 64) - 1
    found = []
    for i in range(1, n + 1):
        mixed = i << 40
        product = mixed ^ mixed >> 29 ^ mixed >> 58
        half = product * inverse & mask
        found.append(half ^ half >> 32)
    return found


@bomb
def one_slot(t: Raw, n: int) -> None:
    """Blocks, nodes, modules and labels at such addresses, and frees of one of them that has no block."""
    stack = t.line(1)
    *addresses, missing = of_one_slot(n + 1)
    for address in addresses:
        t.alloc(address, 64, stack)
        t.node(address, stack)
        t.add(event_kinds.LABEL, address, address, t.name("m\t"), flags=2)
        t.tick(craft.MODULE, address, stack)
    for _ in range(20 * n):
        t.free(missing)


@bomb
def quiet_devices(t: Raw, n: int) -> None:
    """n steps on as many devices as there may be, of three bytes each."""
    stack = t.line(1)
    for i in range(256):
        t.alloc(0x1000 + 64 * i, 64, stack, device=i % 2, index=i // 2 % 128)
    for _ in range(n):
        t.tick(craft.STEP, 1, stack)


@bomb
def devices_in_turn(t: Raw, n: int) -> None:
    """n steps, each with a block on another device."""
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack, device=i % 2, index=i // 2 % 128)
        t.tick(craft.STEP, 1, stack)


@bomb
def escapes(t: Raw, n: int) -> None:
    """A chain of calls whose names grow sixfold where they are escaped."""
    _one_code(t, "/x/" + "\x01" * 1000, "\x01" * 1000)
    chain(t, n)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)


@bomb
def shapes(t: Raw, n: int) -> None:
    """Tensors of as many dimensions as a text has room for."""
    stack, text = t.line(1), t.name("w\tfloat32 " + " ".join(["1"] * 2000))
    t.mark(WALK)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack)
        t.add(event_kinds.LABEL, 0x1000 + 64 * i, 7, text, flags=2)


@bomb
def users(t: Raw, n: int) -> None:
    """Files in homes: of few users, for more are refused, and all of one name."""
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, t.line(i + 1, f"/home/u{i % 200}/{i // 200}/../x.py"))


@bomb
def host_reads(t: Raw, n: int) -> None:
    for i in range(n):
        t.add(event_kinds.HOST_READ, 0x1000 + i, 8, t.line(i + 1), **CUDA)


@bomb
def compacted(t: Raw, n: int) -> None:
    """Sums of a compaction, each of more than a trace could list."""
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.COMPACTED_BLOCKS, 1 << 30, 1 << 40, flags=i % 4)
        t.add(event_kinds.COMPACTED, 1 << 40, 1 << 40, 2**32 - 1)
        t.add(event_kinds.COMPACTED_DRIVER, 1 + i % 5, 1 << 40)
        t.tick(craft.OPTIMIZER, 0x88, stack)
        t.add(event_kinds.LOST, 0, 1 << 40)


@bomb
def compacted_deep(t: Raw, n: int) -> None:
    """A trace past its bound: n survivors at the links of a deep chain, and every kind of sum behind each step, as high
    as a reader takes it: of blocks, nodes, driver calls, launches, kernels of n names, a device's totals."""
    _one_code(t)
    chain(t, n)
    most = (1 << 61) // (4 * n)  # what is higher is damage
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 1 << 40, i + 2)
        t.alloc(0x7F0000000000 + 1024 * i, 512, i + 2, **CUDA)
        t.node(i, i + 2)
        for flags in range(4):
            t.add(event_kinds.COMPACTED_BLOCKS, most, most, flags=flags, thread=i * 7919)
        t.add(event_kinds.COMPACTED, 2**64 - 1, 2**63 - 1, 2**32 - 1)
        t.add(event_kinds.COMPACTED_DRIVER, 2**64 - 1, 2**63 - 1, i + 2, flags=i % 256, **CUDA)
        t.add(event_kinds.LAUNCH, i, 2**63 - 1, i + 2, flags=0x80, **CUDA)
        t.add(event_kinds.WORK, 2**64 - 1, 2**63 - 1, t.name(f"k{i}"), flags=0x80, thread=9)
        t.add(event_kinds.DEVICE, 1 + i % 8, 2**63 - 1 - i, flags=0x80, thread=9, **CUDA)
        t.tick(craft.OPTIMIZER, 0x88, i + 2)


def write(folder: Path, kind: str, n: int, *, per_batch: int = 1000, end: str | None = "") -> Path:
    """One bomb of about n items. Needs gcc (the real encoder is compiled once)."""
    craft.Trace.library = craft.encoder()
    path = folder / f"{kind}-{n}.cmem"
    path.unlink(missing_ok=True)
    CRAFTED[kind](n).write(path, meta=META | {"ring.id": str(rings.ID)}, per_batch=per_batch, end=end)
    return path


def write_with_side(folder: Path, kind: str, n: int) -> Path:
    """The same, all but its first events in a side file."""
    path = write(folder, kind, n, per_batch=64, end=None)
    trace, side = with_side(path.read_bytes(), rings.ID, whole=1)
    path.write_bytes(trace)
    Path(f"{path}.tail").write_bytes(side)
    return path


def write_with_ring(folder: Path, kind: str, n: int) -> Path:
    """The same in a ring file that a kill left; of rings.WILD: one with counts that no recorder writes."""
    craft.Trace.library = craft.encoder()
    path = folder / f"{kind}-{n}-killed.cmem"
    if kind in rings.WILD:
        return rings.write(path, rings.WILD[kind](deep_steps(n)), META)
    return rings.write(path, rings.of_trace(CRAFTED[kind](n)), META)


if __name__ == "__main__":
    for name in CRAFTED:
        print(write(Path(sys.argv[1]), name, int(sys.argv[2]) if len(sys.argv) > 2 else 1000))
