"""Runs of `cuptimem simulate` made by hand: a verdict is judged without a device, a torch or a process."""

from dataclasses import replace
from typing import Any

from cudasim.report import MODELLED, REFUSED, UNDESCRIBED, Note
from cuptimem.report.model import Backward, Clock, Contributor, Device, HostRead, Lost, OutOfMemory, Peak, Report, Steps
from cuptimem.report.stacks import Frame
from cuptimem.simulation.cards import card
from cuptimem.simulation.facts import DeviceFacts, Facts, Raised
from cuptimem.simulation.launch import Run, Setup
from cuptimem.simulation.result import Assumption, UnknownRead

GIB = 1 << 30
SETUP = Setup(card("h100"), 24 * GIB, context=GIB // 2)
LINE = Frame("/home/u/train.py", "train", 30)

OOM = Raised("torch.OutOfMemoryError", ("OutOfMemoryError", "RuntimeError"), "CUDA out of memory. Tried ...", LINE)
ASSERT = Raised("builtins.AssertionError", ("AssertionError", "Exception"), "loss is zero", LINE)

__all__ = [
    "ASSERT",
    "GIB",
    "LINE",
    "OOM",
    "SETUP",
    "Note",
    "Raised",
    "assumption",
    "facts",
    "host_read",
    "modelled",
    "oom_event",
    "read",
    "undescribed",
    "unsupported",
]


def modelled(name: str, size: int) -> Note:
    return Note(MODELLED, name, 3, size)


def undescribed(name: str) -> Note:
    return Note(UNDESCRIBED, name, 1, 0)


def unsupported(name: str) -> Note:
    return Note(REFUSED, name, 2, 0)


def assumption(operator: str = "nonzero", given: bool = False, line: int = 12) -> Assumption:
    return Assumption(operator, 0.5, given, 4, LINE.file, line, "train")


def host_read(line: int, count: int = 1, function: str = "train", written: bool = False) -> HostRead:
    return HostRead("cuda:0", count, 4 * count, (Frame(LINE.file, function, line),), written)


def read(kind: str, line: int = 12, count: int = 3, library: int = 0) -> UnknownRead:
    """Of the user's line, by a library's line where one is given."""
    inner = Frame("/v/lib/python3.11/site-packages/torchlike/loop.py", "go", library) if library else None
    dtype = {"integer": "int64", "flag": "bool", "branch": "float"}.get(kind, "float32")
    user = Frame(LINE.file, "train", line)
    return UnknownRead(kind, dtype, count, 1, user, inner or user)


def oom_event(line: int = 30) -> OutOfMemory:
    return OutOfMemory("cuda:0", 5, GIB, 23 * GIB, (Frame(LINE.file, "train", line),), None)


def report(allocated: int, ooms: tuple[OutOfMemory, ...] = ()) -> Report:
    peak = Peak("cuda:0", allocated, 7, 2, (Contributor(allocated, 3, (LINE,), "forward"),))
    device = Device("cuda:0", 0, peak, 0, 3, 3, allocated, allocated, allocated + GIB, (), ooms)
    return Report(
        path=None,
        complete=True,
        state="complete",
        reason="",
        environment={"script": "/home/u/train.py"},
        start_realtime_ns=0,
        duration_ns=10,
        events=6,
        allocations=3,
        threads=1,
        devices=(device,),
        steps=Steps(),
        clock=Clock(None, None),
        survivors=(),
        backward=Backward(0, 0, 0, 0),
        resident=(),
        leaks=(),
        suspects=(),
        nodes=None,
        nodes_reason="",
        lost=Lost(),
        compacted=None,
    )


def facts(
    setup: Setup = SETUP,
    *,
    used: int | None = 10 * GIB,
    allocated: int = 8 * GIB,
    exit_code: int | None = 0,
    signal: int | None = None,
    chain: tuple[Raised, ...] | None = None,
    timed_out: bool = False,
    refused: int = 0,
    oom_events: int = 0,
    **more: Any,
) -> Facts:
    """A run that went well, with what is said to be different."""
    devices = ()
    if used is not None:
        devices = (DeviceFacts(0, setup.memory, GIB // 2, used, 0, allocated, used - GIB // 2, refused, 1),)
    made = Facts(
        run=Run(setup, exit_code, signal, timed_out, 1.5, (), (), "/t/run.cmem", "", "", ""),
        report=report(allocated, (oom_event(),) * oom_events),
        report_problem="",
        devices=devices,
        processes=len(devices),
        ooms=oom_events,
        retries=0,
        chain=chain,
        elsewhere=(),
        unaccounted=0,
        lost_processes=0,
        modelled=(),
        undescribed=(),
        unsupported=(),
        limits=(),
        limited=0,
        host_reads=(),
        reads=0,
        unknown_reads=(),
        unknown_reads_dropped=0,
        assumptions=(),
        settings="",
        backend="native",
        problems=(),
    )
    return replace(made, **more)
