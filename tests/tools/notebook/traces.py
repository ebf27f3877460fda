"""Traces that notebooks must show without harm: good ones, and what every view must survive."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import craft
import hand_made

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.report.model import Compacted, Report

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u202eevil\x1b[2J\n\r\u2028" + "ünïcödé"


def training(path: Path) -> Report:
    trace = craft.Trace()
    hand_made.training(trace, 30)
    return cuptimem.open(trace.write(path))


def without_steps(path: Path) -> Report:
    trace = craft.Trace()
    for i in range(50):
        trace.alloc(0x1000 * (i + 1), 100 + i, trace.line(i % 5 + 1))
        if i % 3 == 0:
            trace.free(0x1000 * (i + 1))
    return cuptimem.open(trace.write(path))


def one_event(path: Path) -> Report:
    trace = craft.Trace()
    trace.alloc(0x1000, 12345, trace.line(1))
    return cuptimem.open(trace.write(path))


def no_event(path: Path) -> Report:
    return cuptimem.open(craft.Trace().write(path))


def many_lines(path: Path, lines: int = 10_000) -> Report:
    trace = craft.Trace()
    for i in range(lines):
        trace.alloc(0x10000 + 0x1000 * i, 64 + i % 1000, trace.line(i + 1, f"file{i % 7}.py"))
    return cuptimem.open(trace.write(path, per_batch=10_000))


def hostile_names(path: Path) -> Report:
    trace = craft.Trace()
    optimizer = trace.stack((craft.TORCH + "optim/optimizer.py", "wrapper", 5), (HOSTILE, HOSTILE, 20))
    for i in range(20):
        trace.alloc(0x10000 + 64 * i, 4096, trace.stack((HOSTILE, HOSTILE, 1)))
        trace.alloc(0x2000, 100, trace.stack(("x" * 100_000, "y" * 100_000, 2, 0x77, HOSTILE)))
        trace.free(0x2000)
        trace.tick(craft.OPTIMIZER, 0x99, optimizer)
    return cuptimem.open(trace.write(path, meta={"script": HOSTILE, "problems": HOSTILE, "torch": HOSTILE}))


def with_losses(path: Path) -> Report:
    trace = craft.Trace()
    hand_made.training(trace, 12)
    return cuptimem.open(trace.write(path, lost=77))


def crashed(path: Path) -> Report:
    trace = craft.Trace()
    hand_made.training(trace, 12)
    return cuptimem.open(trace.write(path, end=None))


def compacted(path: Path) -> Report:
    return replace(training(path), compacted=Compacted(2, 20, 1_234_567))


def without_its_file(path: Path) -> Report:
    report = training(path)
    path.unlink()
    return report


def synthetic(path: Path) -> Report:
    write_synthetic(str(path), 200_000)
    return cuptimem.open(path)


ALL: dict[str, Callable[[Path], Report]] = {
    one.__name__: one
    for one in (
        training,
        without_steps,
        one_event,
        no_event,
        many_lines,
        hostile_names,
        with_losses,
        crashed,
        compacted,
        without_its_file,
        synthetic,
    )
}
# A part of what each must say about itself.
SAID = {
    "with_losses": "77 events found no room and are lost",
    "crashed": "the end of the recording is missing",
    "compacted": "1,234,567 events of steps 2 to 20 are compacted",
    "without_steps": "none were seen",
    "no_event": "Nothing was allocated",
    "without_its_file": "The picture is not divided by line",
}
