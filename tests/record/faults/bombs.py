"""Traces that are small and ask for much: depth, fan-out, one thing that all refer to, thousands of each kind.

`python -m tests.record.faults.bombs FOLDER [COUNT]` writes them."""

from __future__ import annotations

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


def _one_code(t: Raw, file: str = "train.py", function: str = "main", table: bytes = TABLE) -> None:
    t.define(tracelib.define_string(file), tracelib.define_string(function), tracelib.define_code(1, 2, 1, table))


def chain(t: Raw, depth: int) -> None:
    """Stacks 2 to depth + 1, each the child of the one before."""
    t.define(tracelib.define_stack(0, 1, 0), *(tracelib.define_stack(parent, 1, 0) for parent in range(2, depth + 1)))


def deep(n: int) -> Raw:
    """One chain; blocks at its end."""
    t = Raw()
    _one_code(t)
    chain(t, n)
    t.alloc(0x1000, 64, n + 1)
    return t


def deep_each(n: int) -> Raw:
    """One chain; every link of it allocates a block that stays: n stacks of n / 2 frames."""
    t = Raw()
    _one_code(t)
    chain(t, n)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)
    return t


def deep_steps(n: int) -> Raw:
    """The same, in steps: each is a leak, a survivor, a tick's stack."""
    t = Raw()
    _one_code(t)
    chain(t, n)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.tick(craft.OPTIMIZER, 0x88, i + 2)
    return t


def deep_nodes(n: int) -> Raw:
    """The same, with graph nodes that are made at each link and run in backward."""
    t = Raw()
    _one_code(t)
    chain(t, n)
    for i in range(n):
        t.node(i, i + 2)
    for i in range(n):
        t.run(i, 1)
        t.alloc(0x1000 + 64 * i, 64, 2, flags=craft.IN_NODE | craft.NODE_STACK)
        t.done()
        t.tick(craft.OPTIMIZER, 0x88, 2)
    return t


def torch_chain(n: int) -> Raw:
    """The same inside PyTorch's files: what searches outwards for the user's line."""
    t = Raw()
    _one_code(t, craft.TORCH + "nn/functional.py")
    chain(t, n)
    for i in range(n):
        t.node(i, n + 1 - i % 2)
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.tick(craft.OPTIMIZER, 0x88, i + 2)
    return t


def wide(n: int) -> Raw:
    """n children of one stack, each with a block."""
    t = Raw()
    _one_code(t)
    t.define(tracelib.define_stack(0, 1, 0), *(tracelib.define_stack(2, 1, i) for i in range(n)))
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 3)
        if i % 8 == 0:
            t.tick(craft.OPTIMIZER, 0x88, i + 3)
    return t


def modules(n: int) -> Raw:
    """A chain of module calls, each of another module."""
    t = Raw()
    _one_code(t)
    t.define(tracelib.define_string("M" * 200), tracelib.define_stack(0, 1, 0, 0, 1, 3))
    t.define(*(tracelib.define_stack(parent, 1, 0, 0, parent, 3) for parent in range(2, n + 1)))
    for i in range(n):
        t.add(event_kinds.OBJECT_NEW, i + 1, 1, t.name("M" * 200))
        t.alloc(0x1000 + 64 * i, 64, i + 2)
        t.tick(craft.MODULE, i + 1, i + 2)
    return t


def long_table(n: int) -> Raw:
    """One code with a location table of n entries, asked at n of its offsets."""
    t = Raw()
    _one_code(t, table=TABLE * n)
    t.define(*(tracelib.define_stack(0, 1, n - 1 - i % 7) for i in range(n)))
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)
    return t


def long_names(n: int) -> Raw:
    """A file, a function, a class, an operator and a label of n characters, which n blocks refer to."""
    t = Raw()
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
    return t


def threads(n: int) -> Raw:
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.THREAD, i, i, thread=i * 7919)
        t.alloc(0x1000 + 64 * i, 64, stack, thread=i * 7919)
        t.tick(craft.BACKWARD, i, stack, thread=i * 7919)
    return t


def devices(n: int) -> Raw:
    """As many devices as there may be, and n blocks on them."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        where = {"device": i % 2, "index": i // 2 % 128}
        t.alloc(0x1000 + 64 * i, 64, stack, **where)
        t.add(event_kinds.RESERVED, 1 << 20, 2 << 20, **where)
        t.add(event_kinds.OOM, 0, 1 << 40, stack, **where)
        if i % 16 == 0:
            t.tick(craft.OPTIMIZER, 0x88, stack)
    return t


def clocks(n: int) -> Raw:
    """Ticks of n objects on n threads: a loop for each."""
    t = Raw()
    stacks = [t.line(i + 1) for i in range(64)]
    for i in range(n):
        for kind in range(1, 6):
            t.tick(kind, i, stacks[i % 64], thread=i)
    for i in range(n):
        for kind in range(1, 6):
            t.tick(kind, i, stacks[i % 64], thread=i)
    return t


def steps(n: int) -> Raw:
    t = Raw()
    stack = t.line(1)
    for _ in range(n):
        t.tick(craft.STEP, 1, stack)
    return t


def windows(n: int) -> Raw:
    """n windows, all open at once."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.mark(craft.WINDOW_OPEN, i + 1)
        t.alloc(0x1000 + 64 * i, 64, stack)
        t.tick(craft.STEP, 1, stack)
    for i in range(n):
        t.mark(craft.WINDOW_CLOSE, i + 1)
    return t


def leaks(n: int) -> Raw:
    """n lines that leak in each of 20 steps."""
    t = Raw()
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
    return t


def node_leaks(n: int) -> Raw:
    """n lines with graph nodes that no backward runs, in 20 steps."""
    t = Raw()
    lines = [t.line(i + 1) for i in range(n // 20)]
    tick = t.line(999_999)
    for step in range(20):
        for i, line in enumerate(lines):
            t.node(step * len(lines) + i, line)
            t.alloc(0x1000 + 64 * (step * len(lines) + i), 64, line)
        t.tick(craft.OPTIMIZER, 0x88, tick)
    return t


def holders(n: int) -> Raw:
    """n paths of one leak, and of one text."""
    t = Raw()
    line, tick, text = t.line(1), t.line(2), t.name("x" * n)
    for step in range(20):
        t.alloc(0x1000 + 64 * step, 64, line)
        t.tick(craft.OPTIMIZER, 0x88, tick)
    t.mark(FINAL_BEGIN, 1)
    t.mark(FINAL_END)
    for _ in range(n):
        t.add(event_kinds.HOLDER, 0, 0, line, flags=0)
        t.add(event_kinds.HOLDER_PATH, 20, 1280, text)
    return t


def labels(n: int) -> Raw:
    """Modules that own each other in a circle, and tensors of them."""
    t = Raw()
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
    return t


def ooms(n: int) -> Raw:
    """n blocks alive, and n requests that are refused: each has a list of what is alive."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stacks = [t.line(i + 1) for i in range(n)]
    t.add(event_kinds.SEGMENT_NEW, 0x7F0000000000, 1 << 30, stacks[0], **cuda)
    for i in range(n):
        t.alloc(0x7F0000000000 + 1024 * i, 512, stacks[i], **cuda)
    for i in range(n):
        t.add(event_kinds.OOM, 1, 1 << 40, stacks[i], **cuda)
    return t


def segments(n: int) -> Raw:
    """n segments with holes, taken and given back while others are alive."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.SEGMENT_NEW, 0x7F0000000000 + i * 0x200000, 0x200000, stack, **cuda)
        t.alloc(0x7F0000000000 + i * 0x200000 + 0x1000, 512, stack, **cuda)
        t.add(event_kinds.RESERVED, 512 * i, 0x200000 * i, **cuda)
    for i in range(n):
        t.free(0x7F0000000000 + i * 0x200000 + 0x1000, **cuda)
        t.add(event_kinds.SEGMENT_FREE, 0x7F0000000000 + i * 0x200000, **cuda)
        t.add(event_kinds.OOM, 1, 1 << 40, stack, **cuda)
    return t


def overlapping(n: int) -> Raw:
    """Segments, driver allocations and mappings that overlap all others."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.SEGMENT_NEW, 0x1000 + i, 1 << 40, stack, **cuda)
        t.alloc(0x1000 + i, 1 << 40, stack, **cuda)
        t.add(event_kinds.DRIVER_NEW, 0x1000 + i * 4096, 1 << 40, stack, flags=1 + i % 17, **cuda)
        t.add(event_kinds.DRIVER_MORE, 7 + i % 3, 4)
        t.add(event_kinds.DRIVER_NEW, 0x1000 + (n - i) * 4096, 1 << 40, stack, flags=10, **cuda)
        t.add(event_kinds.DRIVER_MORE, 7 + i % 3, 4)
        t.add(event_kinds.DEFERRED_FREE, i, **cuda)
    for i in range(n):
        t.add(event_kinds.DRIVER_FREE, 0x1000 + i * 4096, 1 << 39, flags=10, **cuda)
        t.add(event_kinds.DRIVER_FREE, 0x1000 + i * 4096, flags=1 + i % 17, **cuda)
    return t


def contexts(n: int) -> Raw:
    """Contexts that each end all that lives."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.DRIVER_NEW, 0xC0 + i, 0, 0, flags=17, **cuda)
        t.add(event_kinds.DRIVER_NEW, 0x100000 + i * 4096, 4096, stack, flags=1, **cuda)
    for i in range(n):
        t.add(event_kinds.DRIVER_FREE, 0xC0 + i, flags=17, **cuda)
        t.add(event_kinds.DRIVER_NEW, 0xC0 + i, 0, 0, flags=17, **cuda)
    return t


def handles(n: int) -> Raw:
    """One physical handle with n references and n mappings, then released n times."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stack = t.line(1)
    t.add(event_kinds.DRIVER_NEW, 7, 1 << 21, stack, flags=6, **cuda)
    for i in range(n):
        t.add(event_kinds.DRIVER_NEW, 7, 1 << 21, stack, flags=7, **cuda)
        t.add(event_kinds.DRIVER_NEW, 0x400000 + (i << 21), 1 << 21, stack, flags=10, **cuda)
        t.add(event_kinds.DRIVER_MORE, 7, 4)
    for i in range(n):
        t.add(event_kinds.DRIVER_FREE, 7, flags=6, **cuda)
        t.add(event_kinds.DRIVER_FREE, 0x400000 + (i << 21), 1 << 21, flags=10, **cuda)
    return t


def records(n: int) -> Raw:
    """Activity records that never find their allocation, and allocations without record, all of one number."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stack = t.line(1)
    name = t.name("/lib/" + "x" * 200)
    for i in range(n):
        t.add(event_kinds.DRIVER_RECORD, 0x9000000 + i, 1 << 20, name, thread=9, **cuda)
        t.add(event_kinds.DRIVER_MORE, 5, 2, thread=9)
        t.add(event_kinds.DRIVER_NEW, 0x9000000 + i + 1, 1 << 20, stack, flags=5, **cuda)
        t.add(event_kinds.DRIVER_MORE, 6, 2)
        t.add(event_kinds.DRIVER_FREE, 0x9000000 + i + 1, flags=5, **cuda)
        t.add(event_kinds.DRIVER_MORE, 5, 2)
    return t


def kernels(n: int) -> Raw:
    """Launches and work with one number, and with numbers that never meet."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack, **cuda)
        t.add(event_kinds.LAUNCH, i, 1 if i % 2 else i, stack, flags=1, **cuda)
        t.add(event_kinds.WORK, 1 if i % 3 else n + i, 5000, t.name(f"k{i}"), flags=1, thread=9)
        t.free(0x1000 + 64 * i, **cuda)
    return t


def pools(n: int) -> Raw:
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    for i in range(n):
        t.add(event_kinds.POOL, i, 1 << 25, flags=1 + i % 4, thread=9, **cuda)
        for told in (1, 2, 3, 4, 5, 6):
            t.add(event_kinds.DEVICE, told, (1 << 34) + i, flags=0x80, thread=9, **cuda)
    return t


def never_ends(n: int) -> Raw:
    """Nodes that begin inside of each other and never end; every block is in all of them."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.node(i, stack)
        t.run(i, 1)
        t.alloc(0x1000 + 64 * i, 64, stack, flags=craft.IN_NODE | craft.NODE_STACK)
        t.add(event_kinds.OPERATOR, stack=t.name(f"op{i}"))
        t.mark(FILLING, 0)
        t.mark(FILLING, 0x1000 + 64 * i)
        t.mark(5, 2)
    return t


def same_address(n: int) -> Raw:
    """One address that is given out again and again without a free, and freed more often than given out."""
    t = Raw()
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
    return t


def times(n: int) -> Raw:
    """Times that go back and forth by the whole range."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack, after=(1 << 50) if i % 2 else -(1 << 50) + 1024)
        if i % 4 == 0:
            t.tick(craft.OPTIMIZER, 0x88, stack)
    return t


def collisions(n: int) -> Raw:
    """Stacks and blocks at addresses with one low half: what a weak hash puts into one slot."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.alloc(i << 32, 64, stack)
        t.node(i << 32, stack)
        t.add(event_kinds.LABEL, i << 48, i << 32, t.name("m\t"), flags=2)
        t.tick(craft.MODULE, i << 32, stack)
    return t


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


def one_slot(n: int) -> Raw:
    """Blocks, nodes, modules and labels at such addresses, and frees of one of them that has no block."""
    t = Raw()
    stack = t.line(1)
    *addresses, missing = of_one_slot(n + 1)
    for address in addresses:
        t.alloc(address, 64, stack)
        t.node(address, stack)
        t.add(event_kinds.LABEL, address, address, t.name("m\t"), flags=2)
        t.tick(craft.MODULE, address, stack)
    for _ in range(20 * n):
        t.free(missing)
    return t


def quiet_devices(n: int) -> Raw:
    """n steps on as many devices as there may be, of three bytes each."""
    t = Raw()
    stack = t.line(1)
    for i in range(256):
        t.alloc(0x1000 + 64 * i, 64, stack, device=i % 2, index=i // 2 % 128)
    for _ in range(n):
        t.tick(craft.STEP, 1, stack)
    return t


def devices_in_turn(n: int) -> Raw:
    """n steps, each with a block on another device."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack, device=i % 2, index=i // 2 % 128)
        t.tick(craft.STEP, 1, stack)
    return t


def escapes(n: int) -> Raw:
    """A chain of calls whose names grow sixfold where they are escaped."""
    t = Raw()
    _one_code(t, "/x/" + "\x01" * 1000, "\x01" * 1000)
    chain(t, n)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, i + 2)
    return t


def shapes(n: int) -> Raw:
    """Tensors of as many dimensions as a text has room for."""
    t = Raw()
    stack, text = t.line(1), t.name("w\tfloat32 " + " ".join(["1"] * 2000))
    t.mark(WALK)
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, stack)
        t.add(event_kinds.LABEL, 0x1000 + 64 * i, 7, text, flags=2)
    return t


def users(n: int) -> Raw:
    """Files in homes: of few users, for more are refused, and all of one name."""
    t = Raw()
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 64, t.line(i + 1, f"/home/u{i % 200}/{i // 200}/../x.py"))
    return t


def host_reads(n: int) -> Raw:
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    for i in range(n):
        t.add(event_kinds.HOST_READ, 0x1000 + i, 8, t.line(i + 1), **cuda)
    return t


def compacted(n: int) -> Raw:
    """Sums of a compaction, each of more than a trace could list."""
    t = Raw()
    stack = t.line(1)
    for i in range(n):
        t.add(event_kinds.COMPACTED_BLOCKS, 1 << 30, 1 << 40, flags=i % 4)
        t.add(event_kinds.COMPACTED, 1 << 40, 1 << 40, 2**32 - 1)
        t.add(event_kinds.COMPACTED_DRIVER, 1 + i % 5, 1 << 40)
        t.tick(craft.OPTIMIZER, 0x88, stack)
        t.add(event_kinds.LOST, 0, 1 << 40)
    return t


def compacted_deep(n: int) -> Raw:
    """A trace past its bound: n survivors at the links of a deep chain, and every kind of sum behind each step, as high
    as a reader takes it: of blocks, nodes, driver calls, launches, kernels of n names, a device's totals."""
    t = Raw()
    cuda = {"device": craft.CUDA, "index": 0}
    _one_code(t)
    chain(t, n)
    most = (1 << 61) // (4 * n)  # what is higher is damage
    for i in range(n):
        t.alloc(0x1000 + 64 * i, 1 << 40, i + 2)
        t.alloc(0x7F0000000000 + 1024 * i, 512, i + 2, **cuda)
        t.node(i, i + 2)
        for flags in range(4):
            t.add(event_kinds.COMPACTED_BLOCKS, most, most, flags=flags, thread=i * 7919)
        t.add(event_kinds.COMPACTED, 2**64 - 1, 2**63 - 1, 2**32 - 1)
        t.add(event_kinds.COMPACTED_DRIVER, 2**64 - 1, 2**63 - 1, i + 2, flags=i % 256, **cuda)
        t.add(event_kinds.LAUNCH, i, 2**63 - 1, i + 2, flags=0x80, **cuda)
        t.add(event_kinds.WORK, 2**64 - 1, 2**63 - 1, t.name(f"k{i}"), flags=0x80, thread=9)
        t.add(event_kinds.DEVICE, 1 + i % 8, 2**63 - 1 - i, flags=0x80, thread=9, **cuda)
        t.tick(craft.OPTIMIZER, 0x88, i + 2)
    return t


CRAFTED: dict[str, Callable[[int], Raw]] = {
    one.__name__: one
    for one in (
        deep, deep_each, deep_steps, deep_nodes, torch_chain, wide, modules, long_table, long_names, threads, devices,
        clocks, steps, windows, leaks, node_leaks, holders, labels, ooms, segments, overlapping, contexts, handles,
        records, kernels, pools, never_ends, same_address, times, collisions, host_reads, compacted, compacted_deep,
        one_slot, quiet_devices, devices_in_turn, escapes, shapes, users,
    )
}  # fmt: skip


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
