"""The largest batch: is the size that is answered the one that fits, and the next one the first that does not?"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import clean_environment

pytestmark = [pytest.mark.cuda_torch, pytest.mark.costly]

LOADER = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(1, 1 << 20, bias=False).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step, (x,) in enumerate(DataLoader(TensorDataset(torch.ones(2000, 1)), batch_size=2)):
    net(x.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 3:
        break
"""
# Evaluation keeps four outputs, behind the steps that a search comes to.
EVALUATED = """\
import os, torch
batch = int(os.environ["BATCH"])
net = torch.nn.Linear(1, 1 << 20, bias=False).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    net(torch.ones(batch, 1, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    kept = [net(torch.ones(batch, 1, device="cuda")) for _ in range(4)]
"""
CAUGHT = """\
import sys, torch
size = int(sys.argv[sys.argv.index("--batch") + 1])
try:
    torch.empty(size << 20, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    torch.empty(1, device="cuda")
"""


def ask(python: str, folder: Path, program: str, *options: str) -> tuple[int, dict]:
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [python, "-m", "cuptimem", "max-batch", "--json", *options, "program.py"],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def rows(found: dict, size: int) -> list[dict]:
    return [one for one in found["tried"] if one["size"] == size]


def test_a_batch_of_dataloaders_in_multiples(sim_python, tmp_path):
    code, found = ask(sim_python, tmp_path, LOADER, "--memory", "2GiB", "--multiple", "4")
    assert code == 0 and found["answer"] == "found", found["reason"]
    assert found["next"] == found["size"] + 4 and found["size"] % 4 == 0 and found["whole"] is True
    assert all(one["fits"] for one in rows(found, found["size"]))
    (refused,) = rows(found, found["next"])
    assert refused["ooms"] > 0 and "it asked for" in found["reason"]
    # A sample takes 4 MiB: the gradient of the sum is expanded.
    assert 250 < found["size"] < 340


def test_evaluation_behind_the_steps_counts(sim_python, tmp_path):
    code, found = ask(sim_python, tmp_path, EVALUATED, "--memory", "2GiB", "--env", "BATCH")
    assert code == 0 and found["whole"] is True, found["reason"]
    held = 4 * found["size"] << 22  # four outputs
    assert held < 2 << 30 and held + (16 << 22) > (2 << 30) - found["context"] - (64 << 20)
    assert any(not one["fits"] and one["whole"] for one in found["tried"])


def test_a_caught_refusal_does_not_fit(sim_python, tmp_path):
    """Without steps nothing is predicted; the program goes on after the refusal."""
    code, found = ask(sim_python, tmp_path, CAUGHT, "--memory", "1GiB", "--arg=--batch", "--start", "64")
    assert code == 0 and found["predicted"] is None, found["reason"]
    assert found["size"] == (1024 - found["context"] // (1 << 20)) and found["next"] == found["size"] + 1
