"""Garbage that waits for Python's collector: no leak, but not \"nothing grows\" either."""

import subprocess
import sys
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output import json
from cuptimem.output.text import leak_views
from tests.conftest import ROOT, clean_environment

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MIB = 1 << 20
PROGRAM = """\
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


main()
"""


def recorded(folder: Path, cycle: bool) -> cuptimem.Report:
    (folder / "boxes.py").write_text(PROGRAM.format(cycle=cycle))
    command = [sys.executable, "-m", "cuptimem", "run", "-q", "-o", "boxes.cmem", "boxes.py"]
    subprocess.run(command, cwd=folder, check=True, timeout=240, env={**clean_environment(), "PYTHONPATH": str(ROOT)})
    return cuptimem.open(folder / "boxes.cmem")


def test_a_sawtooth_is_named(tmp_path: Path) -> None:
    report = recorded(tmp_path, cycle=True)
    garbage = report.device("cpu").garbage
    assert garbage is not None and not report.leaks
    assert (garbage.collections, garbage.freed, garbage.most, garbage.after_oom) == (4, 40 * MIB, 10 * MIB, 0)
    said = "but garbage in reference cycles grew to 10.0 MiB on cpu (4 collections freed 40.0 MiB)"
    assert leak_views.line(report) == f"no leak: 40 steps judged, {said}"
    assert json.summary(report)["devices"][0]["garbage"] == {
        "collections": 4, "freed": 40 * MIB, "most": 10 * MIB, "after_oom": 0
    }  # fmt: skip


def test_without_cycles_nothing_waits(tmp_path: Path) -> None:
    report = recorded(tmp_path, cycle=False)
    garbage = report.device("cpu").garbage
    assert garbage is not None and garbage.freed == 0 and report.sawtooth is None
    assert leak_views.line(report).endswith("nothing grows")
