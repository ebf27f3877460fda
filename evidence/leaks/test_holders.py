"""Who holds a leak, on programs of the suite."""

import re
import sys
import types
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cuptimem  # noqa: E402  behind torch's presence
from evidence.leaks import suite  # noqa: E402

pytestmark = pytest.mark.torch

HELD = {
    "p01": "curve in module p01 → list[",
    "p03": "total in main() → .grad_fn",  # gone, as below in main(), run() and fit(), when the recording ends
    "p07": "self.predictions (Trainer) in fit() → list[",
    "p19": "again in run() → list[",
    "p23": "metrics.scores (Metrics) in main() → list[",
    "p46": "data.made (Augmented) in main() → dict[...]",
    "p05": "monitor.state (Monitor) in module p05 → .grad_fn",
    "p25": "moments of whiten() → list[",
    "p29": "problems in module p29 → list[",
    "p36": "optimizers in module p36 → dict[",
    "p38": "deferred.calls (Deferred) in module p38 → list[",
    "p60": "found in module p60 → dict[48 keys]",
    "p56": "SelfAttention.maps (class) → list[",
    "p73": "_adjacency in module p73 → dict[...] → tuple[",
    "p74": "logger.scalars (Logger) in module p74 → defaultdict['",
    "p88": "_calls in module p88 → list[",
    "p115": "ensemble.estimators (Snapshots) in module p115 → list[",
    "p125": "in module p125 → ",
}


def run(name: str, monkeypatch: pytest.MonkeyPatch, **options: Any) -> cuptimem.Report:
    program = suite.PROGRAMS / f"{name}.py"
    said = re.search(r"^# STEPS (\d+)$", program.read_text(), re.MULTILINE)
    made = types.ModuleType(name)
    made.__file__ = str(program)
    monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setattr(sys, "argv", [str(program), said[1] if said else "36"])
    try:
        with cuptimem.profile(**options) as prof:
            exec(compile(program.read_text(), str(program), "exec"), vars(made))
    finally:
        vars(made).clear()  # a graph that refers to itself would keep its model for the tests behind this one
    return prof.report


EXTENDED = ("p38", "p60", "p88", "p115")  # others have a list, a dictionary or an attribute in their place


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.extended) if one in EXTENDED else one for one in HELD]
)
def test_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(name, monkeypatch)
    rows = [one for leak in (*report.leaks, *report.undecided) for one in (leak, *leak.keeps)]
    paths = [one.path for leak in rows for one in leak.holders]
    assert any(HELD[name] in path for path in paths), paths
    assert "problems" not in report.environment


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run("p01", monkeypatch, holders=False)
    assert report.leaks and not any(leak.holders for leak in report.leaks)
