"""Garbage that waits for Python's collector: no leak, but not \"nothing grows\" either."""

import html
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.pages import flamegraph, tables, timeline
from cuptimem.output.text import leak_views, text, views
from tests.conftest import Result

pytestmark = pytest.mark.torch

MIB = 1 << 20
Recorded = Callable[[str], cuptimem.Report]
BOXES = """\
import gc, sys
import torch

gc.disable()


class Box:
    def __init__(self, data):
        self.data = data
        self.me = self if {cycle} else None


def main():
    net = torch.nn.Linear(8, 8)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        opt.zero_grad()
        net(torch.randn(4, 8)).sum().backward()
        Box(torch.ones(1 << 18))
        opt.step()
        if step % 10 == 9:
            gc.collect()


import cuptimem
with cuptimem.profile("x.cmem"):
    main()
"""
# A trainer for each fold, in a cycle with its model. {between}, {behind}: what runs after a fold, and after all.
FOLDS = """\
import gc
import torch

gc.disable()


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(512, 1024, bias=False)
        self.model.trainer = [self]
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def fit(self):
        for _ in range(10):
            self.opt.zero_grad()
            self.model(torch.randn(4, 512)).sum().backward()
            self.opt.step()


def main():
    for fold in range(3):
        Trainer().fit()
        {between}
    {behind}


import cuptimem
with cuptimem.profile("x.cmem"):
    main()
"""


@pytest.fixture
def recorded(forked: Callable[..., Result], tmp_path: Path) -> Recorded:
    def call(program: str) -> cuptimem.Report:
        (tmp_path / "program.py").write_text(program)
        done = forked("program.py")
        assert done.code == 0, done.err
        return cuptimem.open(tmp_path / "x.cmem")

    return call


def at_peak(report: cuptimem.Report) -> int:
    garbage = report.device("cpu").garbage
    assert garbage is not None
    return garbage.at_peak


def test_a_sawtooth_is_named(recorded: Recorded) -> None:
    report = recorded(BOXES.format(cycle=True))
    garbage = report.device("cpu").garbage
    assert garbage is not None and not report.leaks
    assert (garbage.collections, garbage.freed, garbage.most, garbage.after_oom) == (4, 40 * MIB, 10 * MIB, 0)
    said = "but garbage grew to 10.0 MiB on cpu (4 collections freed 40.0 MiB): reference cycles, most of it made at"
    line = leak_views.line(report)
    assert line.startswith(f"no leak: 40 steps judged, {said} ") and line.endswith("program.py:19")
    found = json.summary(report)["devices"][0]["garbage"]
    sums = {"collections": 4, "freed": 40 * MIB, "most": 10 * MIB, "after_oom": 0, "at_peak": 9 * MIB}
    assert found == {**sums, "line": found["line"], "class": None}
    assert found["line"]["line"] == 19
    # The newest box may be in use at the peak.
    shown = " ".join(text.render(views.summary(report), 200).split())
    assert (
        "of these 9.0 MiB (90 %) only Python's garbage collector could free, and did later: reference cycles" in shown
    )
    assert "program.py:19. Break the cycles (weakref), or call gc.collect() every few steps." in shown
    said = "At the peak on cpu, 10.0 MiB: of these 9.0 MiB (90 %) only Python's garbage collector could free"
    for page in (timeline.page(report), flamegraph.html(report), tables.tree(report, report.peaks, False)):
        assert said in html.unescape(page)


def test_without_cycles_nothing_waits(recorded: Recorded) -> None:
    report = recorded(BOXES.format(cycle=False))
    garbage = report.device("cpu").garbage
    assert garbage is not None and garbage.freed == 0 and report.sawtooth is None
    line = leak_views.line(report)
    # A fork's pages become its own as it writes them: its whole process may grow.
    assert line.startswith(("no leak: 40 steps judged, nothing grows", "no leak: 40 steps judged, no tensors grow"))
    assert "garbage" not in line


def test_models_of_earlier_folds_wait_at_the_peak(recorded: Recorded) -> None:
    """A model with its gradient and momentum is 6 MiB. The third fold has the first two beside it."""
    report = recorded(FOLDS.format(between="pass", behind="gc.collect(); Trainer().fit()"))
    assert at_peak(report) == 2 * 6 * MIB
    assert report.cycles("cpu") == "Trainer and Linear"


# A kind of cycle for each; the collector is on, and only the program's own calls of it come to anything.
CYCLES = """\
import gc, os
import cuptimem
import torch

gc.set_threshold(1 << 20)


class Episode:
    def __init__(self, data):
        self.data = data
        self.steps = [self]


def search(data):
    def walk(depth):
        return data[0] if depth == 0 else walk(depth - 1)

    walk(2)


def attempt(data):
    try:
        raise ValueError
    except ValueError as error:
        reason = error


class Finalized:
    def __init__(self, data):
        self.data = data
        self.me = self

    def __del__(self):
        if not gc.isenabled():
            os._exit(3)


def main():
    for step in range(12):
        {call}(torch.ones(1 << 18))
        if step % 5 == 4:
            gc.collect()


with cuptimem.profile("x.cmem"):
    main()
    kept = torch.ones(1 << 18)
"""


@pytest.mark.parametrize(
    ("call", "made"),
    [
        ("Episode", "Episode"),
        pytest.param("search", "search.<locals>.walk()", marks=pytest.mark.extended),
        ("attempt", "reason in attempt()"),
        pytest.param("Finalized", "Finalized", marks=pytest.mark.extended),
        ("torch.sum", ""),
    ],
)
def test_what_makes_cycles_is_named_at_the_end(recorded: Recorded, call: str, made: str) -> None:
    """Two of twelve wait at the end. They are freed before it, so that nothing holds them there."""
    report = recorded(CYCLES.format(call=call))
    assert report.cycles("cpu") == made
    assert [sum(one.bytes for one in rows) for rows in (report.held, report.waiting)] == [MIB, 2 * MIB if made else 0]
    assert [one.path for one in report.held[0].holders] == ["kept in module program"]
    garbage = report.device("cpu").garbage
    assert garbage is not None
    assert (garbage.collections, garbage.freed) == ((2, 10 * MIB) if made else (0, 0))


def test_a_program_under_cuptimem_run(forked: Callable[..., Result], tmp_path: Path) -> None:
    """Its end is that of the interpreter's main module, not of a window in it."""
    program = CYCLES.format(call="Episode").replace('with cuptimem.profile("x.cmem"):', "if True:")
    (tmp_path / "program.py").write_text(program)
    done = forked("-m", "cuptimem", "run", "-q", "-o", "x.cmem", "program.py")
    assert done.code == 0, done.err
    report = cuptimem.open(tmp_path / "x.cmem")
    garbage = report.device("cpu").garbage
    assert garbage is not None and (garbage.collections, garbage.freed) == (2, 10 * MIB)
    assert report.cycles("cpu") == "Episode" and [one.bytes for one in report.held] == [MIB]


TWO_KINDS = """\
import cuptimem
import torch


class Episode:
    def __init__(self, data):
        self.data = data
        self.env = Env(self)


class Env:
    def __init__(self, episode):
        self.episode = episode


class Small:
    def __init__(self, data):
        self.data = data
        self.me = [self]


def main():
    torch.ones(1 << 25)
    net = torch.nn.Linear(8, 8)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        Small(torch.ones(1 << 14))
        Episode(torch.ones(1 << 18))
        opt.zero_grad()
        net(torch.randn(4, 8)).sum().backward()
        opt.step()
        if step % 15 == 14:
            gc.collect()


import gc
gc.disable()
with cuptimem.profile("x.cmem"):
    main()
"""


def test_of_two_kinds_of_cycles_the_larger_is_named(recorded: Recorded) -> None:
    """With both of its classes. The peak, before the loop, has no garbage."""
    report = recorded(TWO_KINDS)
    assert at_peak(report) == 0 and report.cycles("cpu") == "Env and Episode"
    said = "garbage grew to 15.9 MiB on cpu (2 collections freed 31.9 MiB): cycles of Env and Episode, most of it made"
    line = leak_views.line(report)
    assert line.startswith(f"no leak: 40 steps judged, but {said} at ") and line.endswith("program.py:28")
    garbage = report.device("cpu").garbage
    assert garbage is not None and garbage.made is not None and garbage.made.bytes == 30 * MIB


@pytest.mark.parametrize(
    ("between", "behind"), [("gc.collect()", "pass"), pytest.param("return", "pass", marks=pytest.mark.extended)]
)
def test_a_model_that_trains_is_no_garbage(recorded: Recorded, between: str, behind: str) -> None:
    report = recorded(FOLDS.format(between=between, behind=behind))
    assert at_peak(report) == 0
