"""Small valid traces made by hand: the caller chooses every name in them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "analysis"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit" / "trace"))

import craft
import tracelib

from tests import event_kinds
from tests.event_kinds import HOLDER, HOLDER_PATH, LABEL

ROOT = Path(__file__).resolve().parents[3]
FINAL_BEGIN, FINAL_END, WALK = 7, 8, 10  # cm_mark_kind
STEPS = 24  # enough for a leak's verdict
STACK_OF_LEAK = 13  # the line in the file that leaks


@dataclass(frozen=True)
class Names:
    """Text of a trace. File, function and code are of the user's lines.

    Bytes that are no UTF-8 are surrogates, as in os.fsdecode. Meta and end are cut at a NUL."""

    file: str = "train.py"
    function: str = "main"
    code: str = "    x = make(10)"
    module: str = "Linear"  # the class of an nn.Module that is called, and made
    label: str = "encoder.0.weight"  # its name in the model
    dtype: str = "float32 768 3072"
    node: str = "N5torch8autograd9generated12MulBackward0E"
    operator: str = "aten::mul"
    library: str = "/opt/lib/libnccl.so"  # that took memory of the driver by itself
    kernel: str = "gemm_kernel"
    holder: str = "train.main.kept[0]"
    problem: str = ""  # meta problems
    end: str = ""  # why the recording ended; "" is a normal stop
    meta: Mapping[str, str] = field(
        default_factory=lambda: {
            "argv": "python train.py",
            "script": "train.py",
            "directory": "/home/user",
            "host": "machine",
            "platform": "Linux 6.1 x86_64",
            "python": "3.11.2",
            "torch": "2.14.1",
            "cuptimem": "0.1",
            "pid": "4711",
            "started": "2026-01-01T00:00:00+0000",
            "stdlib": "/usr/lib/python3.11",
            "role": "",
            "nodes": "counted",
        }
    )


def write(path: Path, names: Names | None = None) -> str:
    """Writes a trace of a leaking loop on a CPU and a GPU with the driver level, labels, operators, holders, an
    out-of-memory request and a window. Returns its path.

    Every name of `names` is in at least one view. Needs gcc (the real encoder is compiled once)."""
    names = names if names is not None else Names()
    craft.Trace.library = craft.encoder()
    trace = loop(names)
    meta = {**names.meta, **({"problems": names.problem} if names.problem else {})}
    path.unlink(missing_ok=True)  # the writer replaces no file
    trace.write(path, meta=meta, end=names.end)
    # Lines of code are not the encoder's: behind the first batch, one text for all.
    file, out = path.read_bytes(), bytearray(tracelib.header())
    for _, kind, payload in tracelib.chunks_of(file):
        out += tracelib.chunk(kind, payload)
        if kind == tracelib.BATCH:
            rows = [(code, line, 1, None) for (_, _, line), code in trace.codes.items()]
            out += tracelib.lines_chunk((*rows[0][:3], names.code), *rows[1:])
    path.write_bytes(out)
    return str(path)


def loop(names: Names) -> craft.Trace:
    """What `write` writes."""
    t = craft.Trace()
    cuda = {"device": craft.CUDA, "index": 0}

    def line(number: int) -> int:
        return t.stack((names.file, names.function, number))

    forward = t.stack((names.file, "forward", 12, 0xABC0, names.module), (names.file, names.function, 7))
    kept = line(STACK_OF_LEAK)
    t.add(event_kinds.THREAD, 4711, 1)
    t.add(event_kinds.OBJECT_NEW, 0xABC0, 1, t.name(names.module))
    t.add(event_kinds.DRIVER_NEW, 0xC0, 0, 0, flags=17, **cuda)
    t.add(event_kinds.DRIVER_NEW, 0x7F0000000000, 1 << 24, line(3), flags=1, **cuda)
    t.add(event_kinds.SEGMENT_NEW, 0x7F0000000000, 1 << 24, line(3), **cuda)
    t.add(event_kinds.DRIVER_NEW, 0x7E0000000000, 1 << 22, line(4), flags=1, **cuda)
    t.add(event_kinds.DRIVER_MORE, 0, 1, t.name(names.library))
    t.alloc(0x500000, 4096, line(5))
    t.alloc(0x7F0000000000, 1 << 20, line(5), **cuda)
    t.mark(WALK)
    t.add(LABEL, 0xABC0, 0, t.name(f"{names.label.rpartition('.')[0] or names.label}\t"), flags=1)
    for device in ({}, cuda):
        block = 0x7F0000000000 if device else 0x500000
        t.add(LABEL, block, 0xABC0, t.name(f"{names.label}\t{names.dtype}"), flags=2, **device)
    for told, size in ((1, 1 << 34), (2, 1 << 26), (3, 1 << 25), (6, 1 << 28)):  # cm_device_bytes; 6 is the last
        t.add(event_kinds.DEVICE, told, size, flags=0x80, thread=9, **cuda)
    for step in range(STEPS):
        for device, base in (({}, 0x100000), (cuda, 0x7F0000100000)):
            t.operator(names.operator)
            t.alloc(base, 256, forward, **device)
            t.operator("")
            t.alloc(base + 0x1000 + step * 64, 64, kept, **device)
            t.node(step, forward)
            t.run(step, 1, names.node)
            t.alloc(base + 0x80000, 512, line(10), flags=craft.IN_NODE | craft.NODE_STACK, **device)
            t.done()
            t.free(base + 0x80000, 512, **device)
            t.free(base, 256, **device)
        t.add(event_kinds.LAUNCH, 5, step + 1, line(14), flags=1, **cuda)
        t.add(event_kinds.WORK, step + 1, 5000, t.name(names.kernel), flags=1, thread=9)
        t.tick(craft.OPTIMIZER, 0x88, line(15))
    t.add(event_kinds.OOM, 0, 1 << 40, line(16), **cuda)
    t.add(event_kinds.OOM, 0, 1 << 40, line(16))
    t.mark(FINAL_BEGIN, 1)
    t.mark(FINAL_END)
    for device in ({}, cuda):
        t.add(HOLDER, 0, 0, kept, flags=2, **device)
        t.add(HOLDER_PATH, STEPS, STEPS * 64, t.name(names.holder))
    return t
