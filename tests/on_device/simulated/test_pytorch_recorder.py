"""PyTorch's own memory recorder runs on the simulated device, and sees the stacks that cuptimem sees."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch


def test_every_allocation_has_the_stack_that_pytorch_recorded(
    forked_on_device: Callable[..., Result], tmp_path: Path
) -> None:
    done = forked_on_device("-m", "tests.on_device.simulated.pytorch_recorder", str(tmp_path / "run.cmem"))
    assert done.code == 0, done.err[-3000:]
    found = json.loads(done.out.splitlines()[-1])
    assert found["stacks"] > 1000
    assert found["with frames"] > 500  # forward and optimizer: backward's thread has no Python frames
    assert found["stacks"] - found["with frames"] > 100
    assert found["deepest"] > 10
    assert found["segments"] > 0 and found["summary"] > 100
    assert found["page"] > 10_000 and found["trace"] > 1000
