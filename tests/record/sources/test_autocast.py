"""Half copies of weights that autocast keeps until its context ends: by name, to the byte, and nothing else by it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PROGRAM = """
import torch
from torch import nn

def weights(*layers):
    return sum(p.numel() for layer in layers for p in layer.parameters())

first, second = nn.Linear(256, 512), nn.Linear(512, 256)
frozen = nn.Linear(256, 256).requires_grad_(False)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for step in range({steps}):
    with torch.set_grad_enabled({trains}), torch.autocast("cpu", dtype=torch.bfloat16):
        for part in range(2):  # a cached copy is no new one
            out = second(first(torch.randn(512, 256)))
        loss = frozen(out).float().mean()
        held = torch.empty(1 << 22)  # the peak
        del held
    if {trains}:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    del out, loss
print(2 * weights(first, second))
"""


@pytest.mark.parametrize("trains", [True, False])
def test_what_autocast_caches(tmp_path: Path, trains: bool) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(trains=trains, steps=4))
    command = [sys.executable, "-m", "cuptimem"]
    run = [*command, "run", "-o", "trace.cmem", "program.py"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = subprocess.run(
        [*command, "account", "trace.cmem", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    (account,) = json.loads(said.stdout)["accounts"]
    assert account["autocast cache"] == int(done.stdout)
