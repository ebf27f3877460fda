"""One recorded training of 24 steps that keeps a tensor a step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(24):
    loss = model(torch.randn(32, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append(torch.zeros(10_000))
"""


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(PROGRAM)
    subprocess.run(
        [sys.executable, "-m", "cuptimem", "run", "-q", "-o", "run.cmem", "train.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUPTIMEM_CUDA": "no"},
        check=True,
    )
    return folder / "run.cmem"
