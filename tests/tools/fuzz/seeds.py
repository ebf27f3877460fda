"""Inputs to begin with: every kind of trace that there is, small. `python -m tests.tools.fuzz.seeds FOLDER` writes
them.

Needs gcc, and the extension built in place (synthetic traces)."""

import itertools
import os
import re
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.synthetic import write_synthetic

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "analysis"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "capture"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "trace"))

import craft
import tracelib
from capture_support import compile_stress

from tests import event_kinds

ROOT = Path(__file__).resolve().parents[3]
RING, TRACE = b"./.cuptimem-ring-fuzz", b"trace.cmem"  # input.h
COLLECT_BEGIN, COLLECT_END, FINAL_BEGIN, FINAL_END = 5, 6, 7, 8


def part(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data


def sparse(ring: bytes) -> bytes:
    """A ring file without its zeros (input.h)."""
    out = [struct.pack("<I", len(ring))]
    for run in re.finditer(rb"(?:[^\0]|\0{1,16}(?!\0))+", ring):
        for at in range(run.start(), run.end(), 65535):
            piece = ring[at : min(run.end(), at + 65535)]
            out.append(struct.pack("<IH", at, len(piece)) + piece)
    return b"".join(out)


def chunks(trace: bytes) -> Iterator[tuple[int, bytes]]:
    at = 16
    while at + 16 <= len(trace):
        length = struct.unpack_from("<I", trace, at + 8)[0]
        if at + 16 + length > len(trace):
            break  # cut off
        yield trace[at + 4], trace[at + 16 : at + 16 + length]
        at += 16 + length


def with_ring(trace: bytes, ring: bytes, path: str, ring_path: str) -> bytes:
    """A trace and the ring file it names, both under the names that the harness gives them."""
    pieces = [trace[:16]]
    whole = 16
    for kind, payload in chunks(trace):
        whole += 16 + len(payload)
        if kind == 1:
            old = ring_path.encode()
            payload = payload.replace(tracelib.varint(len(old)) + old, tracelib.varint(len(RING)) + RING)
            old = path.encode()
            payload = payload.replace(tracelib.varint(len(old)) + old, tracelib.varint(len(TRACE)) + TRACE)
        pieces.append(tracelib.chunk(kind, payload))
    pieces.append(trace[whole:])
    ring = ring.replace(path.encode(), TRACE.ljust(len(path), b"\0"))
    return b"CMFZ" + part(b"T", b"".join(pieces)) + part(b"R", sparse(ring))


def with_side(trace: bytes, ring_id: int, whole: int, *, parts: int = 2) -> tuple[bytes, bytes]:
    """A trace without end (its meta names ring_id) without its batches behind the first `whole`, and those as a side
    file."""
    kept, aside = [trace[:16]], []
    for kind, payload in chunks(trace):
        if kind != tracelib.BATCH:
            kept.append(tracelib.chunk(kind, payload))
        elif whole > 0:
            kept.append(tracelib.chunk(kind, payload + tracelib.varint(1)))
            whole -= 1
        else:
            aside.append(tracelib.chunk(kind, payload + tracelib.varint(len(aside) + 2)))
    each = -(-len(aside) // parts)
    images = [b"".join(aside[at : at + each]) for at in range(0, len(aside), each)]
    size = max(map(len, images)) + 32
    head = b"CUPTSIDE" + struct.pack("<IIQQ", 1, len(images), size, ring_id)
    side = head.ljust(4096, b"\0") + b"".join(image.ljust(size, b"\0") for image in images)
    return b"".join(kept), side


def with_lines(trace: bytes) -> bytes:
    """With the text of its codes' lines behind the first batch, and some that means nothing."""
    pieces, first = [trace[:16]], True
    for kind, payload in chunks(trace):
        pieces.append(tracelib.chunk(kind, payload))
        if kind == tracelib.BATCH and first:
            first = False
            lines = [(code, line, 1, None) for code in range(1, 9) for line in range(1, 13)]
            pieces.append(tracelib.lines_chunk((1, 12, 1, "    x = make(10)"), *lines, (999, 0, 2, "y\x1b[2J\u202e")))
            pieces.append(tracelib.lines_chunk((2, 9, 2, None), (3, 9, 3, "")))
    return b"".join(pieces)


def with_trees(trace: bytes) -> bytes:
    """With a tree sample behind each chunk of the beginning, the second one damaged."""
    process = (7, 1, 99, 2, "pt_data_worker", (40, 20, 8, 0), (1, 2, 3, 4, 5, 6, 7, 8))
    good = tracelib.tree_chunk(
        10**18,
        [process, (*process[:6], None)],
        [(7, 4096, "/dev/shm/x\x1b[2J"), (0, 9, "")],
        open_files=[(7, 1 << 27, "/m\x1b")],
    )
    samples = iter([good, tracelib.tree_chunk(1, [process] * 300, None), good[:-3]])
    pieces = [trace[:16]]
    for kind, payload in chunks(trace):
        pieces.append(tracelib.chunk(kind, payload))
        pieces += [tracelib.chunk(tracelib.TREE, sample) for sample in itertools.islice(samples, 1)]
    return b"".join(pieces)


def steps(count: int, *, leak: bool, nodes: bool, clock: int = craft.OPTIMIZER) -> craft.Trace:
    """A loop as a training runs it."""
    t = craft.Trace()
    forward = t.stack(("layer.py", "forward", 12, 0xABC0, "Linear"), ("train.py", "main", 7))
    kept, tick = t.line(9), t.line(11)
    t.add(event_kinds.THREAD, 4711, 1)
    for block in range(3):
        t.add(event_kinds.SEED, 0x9000 + block * 64, 64)
    t.mark(craft.SEEDED, 1)
    for step in range(count):
        t.tick(craft.DATA, 0x77, t.line(6))
        t.alloc(0x1000, 256, forward)
        if nodes:
            for n in range(2):
                t.node(step * 2 + n, forward)
        if leak:
            t.alloc(0x100000 + step * 64, 64, kept)
        if nodes:
            t.run(step * 2 + 1, 1)
            t.alloc(0x2000, 512, t.line(10), flags=craft.IN_NODE | craft.NODE_STACK)
            t.done()
            t.run(craft.NO_SEQUENCE, 1, "N5torch8autograd14AccumulateGradE")
            t.alloc(0x3000, 128, 0, flags=craft.IN_NODE)
            t.done()
            t.free(0x2000, 512)
            t.free(0x3000, 128)
            if not leak or step % 2:
                t.add(event_kinds.NODE_FREE, step * 2, 1)
        t.free(0x1000, 256)
        t.tick(clock, 0x88, tick)
        if step % 4 == 3:
            t.mark(COLLECT_BEGIN, 2)
            t.mark(COLLECT_END, 2)
    t.mark(FINAL_BEGIN, 1)
    t.free(0x9000, 64)
    t.mark(FINAL_END)
    return t


def windows() -> craft.Trace:
    t = craft.Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.mark(craft.WINDOW_OPEN, 1)
    t.alloc(0x2000, 200, t.line(2))
    t.mark(craft.WINDOW_OPEN, 2)
    t.free(0x1000)
    t.node(5, t.line(3))
    t.mark(craft.WINDOW_CLOSE, 1)
    t.run(5, 1)
    t.alloc(0x3000, 300, t.line(4), flags=craft.IN_NODE | craft.NODE_STACK)
    t.done()
    t.mark(craft.WINDOW_CLOSE, 2)
    t.free(0x2000)
    return t


def devices() -> craft.Trace:
    t = craft.Trace()
    for index in range(3):
        where = {"device": craft.CUDA, "index": index}
        t.alloc(0x7000, 1 << 20, t.line(index + 1), **where)
        t.add(event_kinds.RESERVED, 1 << 20, 2 << 20, **where)
        t.add(event_kinds.OOM, 1 << 20, 1 << 40, t.line(20), **where)
        t.add(event_kinds.OBJECT_NEW, 0x50 + index, 1 + index, t.name("Linear"), flags=craft.BEFORE_START)
        t.add(event_kinds.SAMPLE, 1, 1 << 30)
        t.add(event_kinds.LOST, 0, 3)
        t.free(0x7000, **where)
    return t


def loops() -> craft.Trace:
    """Two clocks: the first falls silent, the second goes on; then explicit steps."""
    t = craft.Trace()
    for loop, (clock, obj) in enumerate([(craft.OPTIMIZER, 1), (craft.DATA, 2), (craft.MODULE, 3), (craft.STEP, 4)]):
        for step in range(9):
            t.alloc(0x1000, 64 * (step + 1), t.line(30 + loop), after=50_000)
            t.free(0x1000)
            t.tick(clock, obj, t.line(40 + loop), thread=1 + loop % 2)
    return t


def driver() -> craft.Trace:
    """The driver level: an expandable segment, a pool, records late, a free that failed, totals, work, a window."""
    t = craft.Trace()
    cuda = {"device": craft.CUDA, "index": 0}
    t.add(event_kinds.DRIVER_NEW, 0xC0, 0, 0, flags=17, **cuda)
    t.add(event_kinds.DRIVER_NEW, 0x400000, 1 << 26, t.line(1), flags=9, **cuda)
    for i in range(3):
        t.add(event_kinds.DRIVER_NEW, 7 + i, 1 << 21, t.line(1), flags=6, **cuda)
        t.add(event_kinds.DRIVER_NEW, 0x400000 + (i << 21), 1 << 21, t.line(1), flags=10, **cuda)
        t.add(event_kinds.DRIVER_MORE, 7 + i, 4)
    t.alloc(0x400000, 3 << 20, t.line(2), **cuda)
    t.add(event_kinds.DRIVER_NEW, 0x9000000, 1 << 20, t.line(3), flags=5, **cuda)
    t.add(event_kinds.DRIVER_MORE, 2**32 - 1, 2)
    t.add(event_kinds.LAUNCH, 5, 1, t.line(4), flags=1, **cuda)
    t.add(event_kinds.DRIVER_RECORD, 0x9000000, 1 << 20, t.name("/lib/libtorch_cuda.so"), thread=9, **cuda)
    t.add(event_kinds.DRIVER_MORE, 2**32 - 1, 2, thread=9)
    t.add(event_kinds.POOL, 0xF0, 1 << 25, flags=4, thread=9, **cuda)
    t.add(event_kinds.WORK, 1, 5000, t.name("kernel"), flags=1, thread=9)
    for what in (1, 2, 3, 4, 6):
        t.add(event_kinds.DEVICE, what, 1 << 30, flags=0x80, thread=9, **cuda)
    t.mark(craft.WINDOW_OPEN, 1)
    t.add(event_kinds.DRIVER_FREE, 0x500000, 1 << 21, flags=10, **cuda)  # a part of two
    t.add(event_kinds.DRIVER_MORE, 1, 5)
    t.add(event_kinds.OOM, 0, 1 << 40, t.line(20), **cuda)
    t.add(event_kinds.DEFERRED_FREE, 0x77, **cuda)
    t.free(0x400000, **cuda)
    t.add(event_kinds.DRIVER_FREE, 8, flags=6, **cuda)
    t.add(event_kinds.DRIVER_FREE, 0x9000000, **cuda)
    t.add(event_kinds.DEVICE, 6, 1 << 29, thread=9, **cuda)
    t.add(event_kinds.DRIVER_FREE, 0xC0, flags=17, **cuda)
    t.mark(craft.WINDOW_CLOSE, 1)
    return t


def all_seeds() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        craft.Trace.library = craft.encoder()
        crafted = {
            "clean": steps(24, leak=False, nodes=False),
            "nodes": steps(12, leak=False, nodes=True),
            "leak": steps(24, leak=True, nodes=False),
            "leaked-nodes": steps(30, leak=True, nodes=True),
            "module-clock": steps(8, leak=True, nodes=True, clock=craft.MODULE),
            "explicit": steps(8, leak=True, nodes=False, clock=craft.STEP),
            "windows": windows(),
            "devices": devices(),
            "loops": loops(),
            "driver": driver(),
            "empty": craft.Trace(),
        }
        for key, trace in crafted.items():
            found[key] = Path(trace.write(folder / f"{key}.cmem", per_batch=97)).read_bytes()
        for key in ("leaked-nodes", "windows"):
            found[f"lines-{key}"] = with_lines(found[key])
        found["trees"] = with_trees(found["leak"])
        found["no-end"] = Path(crafted["leak"].write(folder / "no-end.cmem", end=None)).read_bytes()
        found["batches"] = Path(crafted["nodes"].write(folder / "batches.cmem", per_batch=1)).read_bytes()[:9000]
        found["disk-full"] = Path(windows().write(folder / "full.cmem", end="disk full", lost=3)).read_bytes()
        crafted["nodes"].events[5].stack = 999
        found["unknown-stack"] = Path(crafted["nodes"].write(folder / "unknown.cmem")).read_bytes()

        from cuptimem import _core
        from tests.record.faults import bombs, rings, traces  # they import this module

        names = traces.Names()
        found["everything"] = Path(traces.write(folder / "everything.cmem", names)).read_bytes()
        for kind in sorted({event.kind for event in traces.loop(names).events if event.stack}):
            trace = traces.loop(names)
            for event in trace.events:
                if event.kind == kind:
                    event.stack = 9999
            path = trace.write(folder / f"undefined-{kind}.cmem", meta=dict(names.meta))
            found[f"undefined-{kind}"] = Path(path).read_bytes()
        for key in bombs.CRAFTED:
            found[f"bomb-{key}"] = bombs.write(folder, key, 60).read_bytes()
        for key in ("deep_steps", "modules", "compacted"):
            path = bombs.write_with_side(folder, key, 60)
            side = Path(f"{path}.tail").read_bytes()
            found[f"bomb-side-{key}"] = b"CMFZ" + part(b"T", path.read_bytes()) + part(b"S", side)
        for key in (*rings.WILD, "leaks"):
            path = bombs.write_with_ring(folder, key, 60)
            ring = rings.beside(path)
            found[f"bomb-ring-{key}"] = with_ring(path.read_bytes(), ring.read_bytes(), str(path), str(ring))

        for key, per_batch in [("side", 40), ("side-many", 9)]:
            meta = {"ring.id": "77"}
            path = crafted["nodes"].write(folder / f"{key}.cmem", meta=meta, per_batch=per_batch, end=None)
            trace, side = with_side(Path(path).read_bytes(), 77, whole=1)
            found[key] = b"CMFZ" + part(b"T", trace) + part(b"S", side)
            Path(path).write_bytes(trace)
            alone = len(_core.trace_dump(path))
            Path(f"{path}.tail").write_bytes(side)
            assert len(_core.trace_dump(path)) > alone + per_batch, key  # it is read

        path = str(folder / "synthetic.cmem")
        write_synthetic(path, 400)
        found["synthetic"] = Path(path).read_bytes()

        program = compile_stress()
        rings = folder / "rings"
        rings.mkdir()
        for key, kill, words in [
            ("ring-all", "writer_chunk:1:before", ("make", 2, 40, 1 << 20)),
            ("ring-some", "writer_chunk:3:before", ("overtake", 5, 1 << 20)),
            ("ring-half", "writer_chunk:1:half", ("make", 2, 30, 1 << 20)),
            ("ring-covered", "writer_end:1:before", ("make", 2, 30, 1 << 20)),
            ("ring-losses", "writer_chunk:1:before", ("make", 2, 20, 1 << 20)),
        ]:
            path = str(folder / f"{key}.cmem")
            done = subprocess.run(
                [str(program), words[0], path, *map(str, words[1:])],
                env={**os.environ, "STRESS_RING_DIR": str(rings), "STRESS_KILL": kill},
                check=False,
                capture_output=True,
            )
            assert done.returncode == -9, (key, done)
            (ring,) = rings.iterdir()
            image = bytearray(ring.read_bytes())
            if key == "ring-losses":  # of its first ring, not yet told (ring_layout.h: lost, lost_total)
                table = struct.unpack_from("<Q", image, 40)[0]
                struct.pack_into("<QQQ", image, table + 8, 7, 0, 9)
            found[key] = with_ring(Path(path).read_bytes(), bytes(image), path, str(ring))
            ring.unlink()
    return found


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for key, data in all_seeds().items():
        (target / key).write_bytes(data)
        print(f"{key}: {len(data)} bytes")
