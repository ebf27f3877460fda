"""Whole programs under `cuptimem run`, as a user has them, and what the report says of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, Result

pytestmark = pytest.mark.torch

Run = Callable[..., Result]

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        x = torch.full((256,), float(i))
        return x, x.square()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 512)
        self.second = nn.Linear(512, 256)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(hidden.relu())


def main():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in DataLoader(Squares(), batch_size=16, num_workers=WORKERS):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.6e}")


if __name__ == "__main__":
    main()
"""
PARAMETERS = 4 * (256 * 512 + 512 + 512 * 256 + 256)


def line_of(text: str) -> int:
    return next(i for i, line in enumerate(TRAIN.splitlines(), 1) if text in line)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.extended)])
def test_unchanged_training(run: Run, forked: Run, tmp_path: Path, workers: int) -> None:
    (tmp_path / "train.py").write_text(TRAIN.replace("WORKERS", str(workers)))
    bare = forked("train.py")
    ours = run("-m", "cuptimem", "run", "-q", "-o", "out.cmem", "train.py")
    assert (ours.code, ours.out, ours.err) == (bare.code, bare.out, bare.err)
    report = cuptimem.open(tmp_path / "out.cmem")
    assert report.complete and report.lost == cuptimem.Lost(unknown_frees=report.lost.unknown_frees)
    assert [(step.index, step.device) for step in report.steps] == [(i, "cpu") for i in range(4)]
    assert report.clock.kind == "optimizer" and report.clock.where is not None
    assert report.clock.where[1] == line_of("optimizer.step()")
    # Parameters, gradients and Adam's two moments live at every step's end, its step counters (4 bytes each) too.
    # Of the last batch the input lives on; the prediction's graph died in backward.
    ends = {step.end for step in report.steps}
    assert len(ends) == 1 or workers  # workers: batches that came early
    assert min(ends) >= 4 * PARAMETERS + 4 * 4
    peak = report.peak
    assert sum(c.bytes for c in peak.contributors) == peak.bytes
    by_line = {(line.frame.line, line.phase): line for line in peak.lines if line.frame is not None}
    first = by_line[line_of("self.first = nn.Linear"), "other"]
    assert first.bytes == 4 * (256 * 512 + 512)
    optimizer = by_line[line_of("optimizer.step()"), "optimizer"]
    assert optimizer.bytes >= 2 * PARAMETERS
    gradients = [line for (number, phase), line in by_line.items() if phase == "backward"]
    assert {line_of("self.first(x)"), line_of("self.second(hidden")} <= {
        line.frame.line for line in gradients if line.frame is not None
    }
    assert sum(line.bytes for line in gradients) >= PARAMETERS
    assert report.backward.unresolved == 0 and report.backward.bytes > 0
    modules = {c.modules for c in peak.contributors}
    assert ("Net", "Linear") in modules


def test_example_of_the_readme(run: Run, call: Run, tmp_path: Path) -> None:
    done = run("-m", "cuptimem", "run", "-o", "out.cmem", str(ROOT / "examples" / "train_small.py"), "3")
    assert done.code == 0, done.err
    summary = call("summary", "out.cmem")
    assert "Steps: 3, counted by the optimizer's step at …/examples/train_small.py:" in summary.out
    assert "return x + self.mlp(self.norm2(x))" in summary.out
    steps = call("steps", "out.cmem").out
    assert [line.split()[0] for line in steps.splitlines() if line.split()[:1] and line.split()[0].isdigit()] == [
        "0",
        "1",
        "2",
    ]


def test_profile_inside_a_run(forked: Run, tmp_path: Path) -> None:
    """A program that profiles itself, under `cuptimem run`: its profile is a window of the run."""
    (tmp_path / "s.py").write_text(
        "import torch, cuptimem\na = torch.zeros(1000)\n"
        "with cuptimem.profile('inner.cmem') as prof:\n    b = torch.zeros(500)\n"
        "print(prof.report.device('cpu').allocated, prof.report.device('cpu').start)\n"
    )
    done = forked("-m", "cuptimem", "run", "-q", "-o", "outer.cmem", "s.py")
    assert (done.code, done.out, done.err) == (0, "2000 4000\n", "")
    assert cuptimem.open(tmp_path / "inner.cmem").device("cpu").allocated == 2000
    assert cuptimem.open(tmp_path / "outer.cmem").device("cpu").allocated == 6000


def test_exception_under_a_profile_keeps_both(forked: Run, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import torch, cuptimem\n"
        "with cuptimem.profile('a.cmem'):\n    x = torch.zeros(10)\n    raise ValueError('mine')\n"
    )
    done = forked("s.py")
    assert done.code == 1 and done.err.endswith("ValueError: mine\n") and "cuptimem/" not in done.err
    assert cuptimem.open(tmp_path / "a.cmem").device("cpu").allocated == 40
