"""What could not be installed is said: on standard error while it happens, in the trace and in every view after."""

from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from tests.conftest import Result

PROGRAM = """
import sys, torch, cuptimem
from cuptimem.record import torch_events
torch_events.calibrate = lambda torch: "nodes are laid out in an unknown way"
with cuptimem.profile(sys.argv[1]):
    torch.ones(10)
"""


@pytest.mark.torch
def test_a_hook_that_fails_is_told(forked: Callable[..., Result], tmp_path: Path) -> None:
    trace = tmp_path / "run.cmem"
    done = forked("-c", PROGRAM, str(trace))
    said = "backward is not attributed to forward lines: nodes are laid out in an unknown way"
    assert done.code == 0 and done.err == f"cuptimem: {said}\n"
    report = cuptimem.open(trace)
    assert report.environment["problems"] == said
    assert f"! {said}" in str(report)
