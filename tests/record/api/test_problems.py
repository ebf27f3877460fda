"""What could not be installed is said: on standard error while it happens, in the trace and in every view after."""

import subprocess
import sys

import pytest

import cuptimem

PROGRAM = """
import sys, torch, cuptimem
from cuptimem.record import torch_events
torch_events.calibrate = lambda torch: "nodes are laid out in an unknown way"
with cuptimem.profile(sys.argv[1]):
    torch.ones(10)
"""


@pytest.mark.torch
def test_a_hook_that_fails_is_told(tmp_path):
    trace = tmp_path / "run.cmem"
    done = subprocess.run([sys.executable, "-c", PROGRAM, trace], capture_output=True, text=True, timeout=120)
    said = "backward is not attributed to forward lines: nodes are laid out in an unknown way"
    assert done.returncode == 0 and done.stderr == f"cuptimem: {said}\n"
    report = cuptimem.open(trace)
    assert report.environment["problems"] == said
    assert f"! {said}" in str(report)
