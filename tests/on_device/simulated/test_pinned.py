"""Pinned host memory: a device of its own, sizes as asked for and as rounded, as arithmetic has them."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem import cli
from cuptimem.output.text import host_views
from tests.conftest import Result
from tests.forkserver import recorded

pytestmark = pytest.mark.cuda_torch

MIB = 1 << 20

PROGRAM = """\
import sys
import torch
import cuptimem

cache = {}


def main():
    net = torch.nn.Linear(8, 8).cuda()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with cuptimem.profile(path=sys.argv[1]) as prof:
        for step in range(30):
            batch = torch.randn(100, 1024).pin_memory()
            cache[step] = torch.empty(3 << 20, dtype=torch.uint8, pin_memory=True)
            net(batch[:, :8].cuda()).sum().backward()
            opt.step()
            opt.zero_grad()
        del batch


main()
"""


def test_pinned_tensors_are_a_device(tmp_path: Path, forked_on_device: Callable[..., Result]) -> None:
    (tmp_path / "keeps.py").write_text(PROGRAM)
    trace = tmp_path / "keeps.cmem"
    result = forked_on_device("keeps.py", str(trace))
    assert result.code == 0, result.err
    report = cuptimem.open(trace)
    assert [device.name for device in report.devices][0] == "cuda:0"  # the host's come last
    pinned = report.device("pinned")
    assert (pinned.allocations, pinned.frees) == (60, 30)
    assert pinned.peak.bytes == 30 * 4 * MIB + MIB // 2 == pinned.requested_peak + 30 * MIB + (MIB // 2 - 409_600)
    assert pinned.end == 30 * 4 * MIB
    (leak,) = [leak for leak in report.leaks if leak.device == "pinned"]
    assert (leak.bytes, leak.bytes_per_step) == (30 * 4 * MIB, 4 * MIB)
    assert "cache" in leak.holders[0].path
    assert all(step.allocated == 4 * MIB + MIB // 2 for step in report.steps if step.device == "pinned")
    assert report.device("cpu").end < MIB


LOADER = """\
import json, sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Pieces(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        time.sleep(float(sys.argv[1]))
        return torch.ones(1 << 20, dtype=torch.uint8)

for batch in DataLoader(Pieces(), batch_size=4, num_workers=2, prefetch_factor=4, pin_memory=True):
    batch.cuda(non_blocking=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("worker", "loop", "filled"), [("0", "0.1", [36 * MIB]), ("0.02", "0", [])])
def test_a_queue_of_pinned_batches(
    tmp_path: Path, forked_on_device: Callable[..., Result], worker: str, loop: str, filled: list[int]
) -> None:
    """Eight batches of 4 MiB are ready at most, and the loop has one: known by arithmetic."""
    (tmp_path / "loader.py").write_text(LOADER)
    done = forked_on_device("loader.py", worker, loop, env=recorded(str(tmp_path / "a.cmem"), "-q"))
    assert done.code == 0, done.err
    report = cuptimem.open(tmp_path / "a.cmem")
    found = [one for one in host_views.report_findings(report) if one.kind == "fills"]
    assert [one.bytes for one in found] == filled
    assert all(one.what == "pinned memory" and one.batches == 8 for one in found)
    assert (report.device("pinned").peak.bytes == 36 * MIB) == bool(filled)


def test_every_verb_has_it(
    tmp_path: Path, forked_on_device: Callable[..., Result], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.py").write_text(
        "import torch\n"
        "kept = [torch.empty(300 << 10, dtype=torch.uint8, pin_memory=True) for _ in range(2)]\n"
        "assert kept[0].is_pinned()\n"
    )
    trace = tmp_path / "one.cmem"
    assert forked_on_device("one.py", env=recorded(str(trace), "-q")).code == 0
    for verb in ("summary", "peak", "table", "account", "tree"):
        options = [] if verb == "summary" else ["--device", "pinned"]
        assert cli.main([verb, *options, str(trace)]) == 0
        shown = capsys.readouterr().out
        assert "pinned" in shown, verb
        if verb in ("summary", "peak"):
            assert "600.0 KiB asked for, 424.0 KiB to round each to a power of two" in shown
