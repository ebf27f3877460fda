"""Traces of every kind that an export must be able to deal with, and the reports that its bytes must agree with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.report.model import Report
from tests import event_kinds
from tests.event_kinds import COMPACTED, COMPACTED_BLOCKS, LABEL
from tests.unit.analysis import craft
from tests.unit.analysis.craft import CPU, CUDA, Trace

HOSTILE = '</script><img src=x onerror=alert(1)>";\n\x1b[31m\u202eevil,=1+1\\'
WALK = 10  # cm_mark_kind


def plain(trace: Trace) -> None:
    """Steps of two lines, one that keeps a block for good; sizes that speedscope writes without rounding."""
    kept, temporary = trace.line(10), trace.stack(("model.py", "forward", 20), ("train.py", "main", 11))
    for step in range(12):
        trace.alloc(0x1000 + step * 0x1000, 512, kept)
        trace.alloc(0x900000, 2048, temporary)
        trace.free(0x900000, 2048)
        trace.tick(craft.OPTIMIZER, 0x77, trace.line(30))


def no_steps(trace: Trace) -> None:
    trace.alloc(0x1000, 700, trace.line(1))
    trace.alloc(0x2000, 300, trace.line(2))
    trace.free(0x1000, 700)


def one_event(trace: Trace) -> None:
    trace.alloc(0x1000, 700, trace.line(1))


def nothing(trace: Trace) -> None:
    trace.tick(craft.OPTIMIZER, 0x77, trace.line(30))


def hostile(trace: Trace) -> None:
    """Names that would be markup, commands, separators, keys of the format itself; and one that is far too long."""
    names = [HOSTILE, "action", "alloc", "=cmd()", ";", "a;b 7", "", "\u2066x", "line", "x" * 100_000, "日本"]
    for number, name in enumerate(names):
        stack = trace.stack((name, name, 3), ("train.py", name, number + 1))
        trace.alloc(0x1000 * (number + 1), 1000 + number, stack)
    trace.free(0x1000, 1000)


def lost(trace: Trace) -> None:
    """Events are missing: an address that is given out twice, frees of nothing, a segment freed under its block."""
    line = trace.line(5)
    trace.add(event_kinds.SEGMENT_NEW, 0x100000, 4096, line, device=CUDA, index=0)
    trace.alloc(0x100000, 1024, line, device=CUDA, index=0)
    trace.alloc(0x100000, 2048, line, device=CUDA, index=0)
    trace.add(event_kinds.LOST, 0, 17)
    trace.free(0x555000, 0)
    trace.add(event_kinds.SEGMENT_FREE, 0x100000, 0, device=CUDA, index=0)
    trace.alloc(0x100800, 512, line, device=CUDA, index=0)
    trace.add(event_kinds.SEGMENT_NEW, 0x100000, 8192, line, device=CUDA, index=0)
    trace.alloc(0x1007F0, 64, line, device=CUDA, index=0)
    trace.free(0x100000, 2048, device=CUDA, index=0)
    trace.alloc(0x1000, 700, line)


def compacted(trace: Trace) -> None:
    """Past its bound: blocks that are only counted."""
    plain(trace)
    trace.add(COMPACTED_BLOCKS, 5, 5000)
    trace.add(COMPACTED, 10)
    trace.tick(craft.OPTIMIZER, 0x77, trace.line(30))


def two_devices(trace: Trace) -> None:
    """A CUDA device with a segment and rounded blocks, one whose number is not 0, and the CPU."""
    line = trace.line(5)
    trace.add(event_kinds.SEGMENT_NEW, 0x700000, 2 << 20, line, device=CUDA, index=1)
    trace.add(event_kinds.RESERVED, 512, 2 << 20, device=CUDA, index=1)
    trace.alloc(0x700000, 512, line, device=CUDA, index=1)
    trace.add(event_kinds.REQUESTED, 0x700000, 500, device=CUDA, index=1)
    trace.alloc(0x700400, 1024, line, device=CUDA, index=1)
    trace.free(0x700000, 512, device=CUDA, index=1)
    trace.add(event_kinds.OOM, 1024, 1 << 40, line, device=CUDA, index=1)
    trace.alloc(0x1000, 300, trace.line(6), device=CPU)


def before_start(trace: Trace) -> None:
    trace.add(event_kinds.SEED, 0x5000, 4000)
    trace.add(event_kinds.SEED, 0x9000, 100)
    trace.mark(craft.SEEDED)
    trace.free(0x5000)
    trace.alloc(0x1000, 300, trace.line(6))


def backward(trace: Trace) -> None:
    trace.add(event_kinds.THREAD, 1234, 1)
    trace.node(7, trace.line(40))
    trace.run(7, 1)
    trace.alloc(0x1000, 900, trace.line(41), flags=craft.IN_NODE | craft.NODE_STACK)
    trace.done()
    trace.free(0x1000, 900)


def labelled(trace: Trace) -> None:
    """A walk names a module and its parameter."""
    trace.alloc(0x1000, 4096, trace.line(3))
    trace.mark(WALK)
    trace.add(LABEL, 0x7F00, 0, trace.name("net.0"), flags=1)
    trace.add(LABEL, 0x1000, 0x7F00, trace.name("net.0.weight\tfloat32 32 32"), flags=2)
    trace.alloc(0x4000, 100, trace.line(4))
    trace.free(0x4000, 100)


KINDS: dict[str, Callable[[Trace], None]] = {
    made.__name__: made
    for made in (
        plain,
        no_steps,
        one_event,
        nothing,
        hostile,
        lost,
        compacted,
        two_devices,
        before_start,
        backward,
        labelled,
    )
}
OTHERS = ("synthetic_cpu", "synthetic_cuda", "crashed")


def write_lines(path: Path, count: int) -> None:
    trace = Trace()
    for number in range(count):
        trace.alloc(
            0x1000 + number * 64, 16 + number % 48, trace.stack((f"file{number % 97}.py", f"f{number}", number))
        )
    trace.write(path)


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory, many_lines: int) -> Callable[[str], str]:
    """The path of a trace by its name."""
    Trace.library = craft.encoder()
    folder = tmp_path_factory.mktemp("traces")

    def path_of(name: str) -> str:
        path = folder / f"{name}.cmem"
        if path.exists():
            return str(path)
        if name in KINDS:
            trace = Trace()
            KINDS[name](trace)
            trace.write(
                path,
                meta={"script": HOSTILE if name == "hostile" else "train.py", "pid": "77"},
                lost=17 * (name == "lost"),
            )
        elif name == "many_lines":
            write_lines(path, many_lines)
        else:
            write_synthetic(str(path), 8_000, on="cuda" if name == "synthetic_cuda" else "cpu")
            if name == "crashed":
                data = path.read_bytes()
                path.write_bytes(data[: len(data) * 2 // 3])
        return str(path)

    return path_of


@pytest.fixture(params=[*KINDS, *OTHERS])
def trace(request: pytest.FixtureRequest, traces: Callable[[str], str]) -> str:
    return traces(request.param)


def totals(report: Report) -> dict[str, tuple[int, int, int]]:
    """Peak, end and allocated of each device that had anything."""
    return {d.name: (d.peak.bytes, d.end, d.allocated) for d in report.devices}


@pytest.fixture
def report(trace: str) -> Any:
    return cuptimem.open(trace)
