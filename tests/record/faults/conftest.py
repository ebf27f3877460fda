"""Shared by the tests of hostile and shared files."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import clean_environment

# Past its bound, so that it is compacted and there is a side file; leaks, so that there is a holder; killed, so that
# the end is in a ring.
_KILLED = """
import os, signal, sys
import torch, cuptimem
model = torch.nn.Sequential(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
with cuptimem.profile("killed.cmem", max_size=1 << 16) as prof:
    for step in range(300):
        kept.append(torch.ones(16))
        for _ in range(1000):
            torch.empty(16)
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in (100, 200):
            cuptimem._core.capture_sync()
    assert os.path.exists("killed.cmem.tail")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="session")
def killed(needs_torch: None, python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace of a process that was killed, with its side file; its ring lies elsewhere. Not to be changed: no other
    recording has this folder of rings, or it would bring that one home."""
    home = tmp_path_factory.mktemp("home") / "alice" / "project"
    home.mkdir(parents=True)
    (home / "train.py").write_text(_KILLED)
    rings = tmp_path_factory.mktemp("rings")
    environment = clean_environment() | {"CUPTIMEM_RING_DIR": str(rings)}
    done = subprocess.run([python, "train.py", "--token", "hunter2"], cwd=home, env=environment)
    assert done.returncode == -signal.SIGKILL
    assert (home / "killed.cmem.tail").exists() and list(rings.iterdir())
    return home / "killed.cmem"
