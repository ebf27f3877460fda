"""Four ranks with a device each: bytes on another rank's device, and the page of a rank that is refused memory."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import ROOT, Result, clean_environment
from tests.forkserver import Forks
from tests.on_device.simulated import device

pytestmark = pytest.mark.cuda_torch
RANKS = ROOT / "tests" / "tools" / "ranks"
PROGRAM = str(RANKS / "checkpoint.py")
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4")


@pytest.mark.parametrize("kind", ["ddp", pytest.param("fsdp", marks=pytest.mark.extended)])
def test_a_checkpoint_on_the_first_device(
    on_device: Callable[..., Result], forks: Forks, tmp_path: Path, kind: str
) -> None:
    if kind == "ddp":  # without four imports of PyTorch and torchrun's own
        environment = {**clean_environment(), **device.environment(devices=4), "OMP_NUM_THREADS": "1"}
        server = forks.of(Path(PROGRAM).read_text())
        done = server.run(RANKS / "forked.py", "4", PROGRAM, kind, environment=environment, cwd=tmp_path)
    else:
        done = on_device(*LAUNCH, PROGRAM, kind, devices=4, env={"OMP_NUM_THREADS": "1"}, timeout=600)
    assert done.code == 0, done.err
    found = cuptimem.ranks(tmp_path)
    assert [own.name for own in map(found.own, range(4)) if own] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    (guest,) = found.guests
    assert (guest.device, guest.owner, guest.ranks, guest.bytes) == (
        "cuda:0",
        0,
        (1, 2, 3),
        3 * 4 * (2 * 512 * 1024 + 1024 + 512),
    )
    assert [line.endswith("checkpoint.py:23") for line, _ in guest.lines] == [True]  # state = torch.load(...)
    difference = found.differences[0]
    assert [found.label(at) for at in difference.ranks] == ["0"]
    assert difference.lines[0].name == guest.lines[0][0]

    assert done.err.count("out of memory on cuda:2: run-2.oom.txt") == 1
    assert done.err.count("out of memory in another rank: run-2.oom.txt") == 3
    assert "torch.empty(1 << 40, device=DEVICE)" in (tmp_path / "run-2.oom.txt").read_text()
