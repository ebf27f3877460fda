"""The largest batch: is the size that is answered the one that fits, and the next one the first that does not?"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.on_device.simulated.conftest import InOne

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
# A library's handle finds no room; PyTorch's allocator is not asked.
FOR_A_HANDLE = """\
import sys, torch
size = int(sys.argv[sys.argv.index("--batch") + 1])
kept = torch.empty(size << 20, dtype=torch.uint8, device="cuda")
if size > 1000:
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
"""


MEMORY = 2 << 30  # of all: they share a process, and so a device
Ask = Callable[..., tuple[int, dict]]


@pytest.fixture
def ask(in_one: InOne, tmp_path: Path) -> Ask:
    """The exit code and the answer of a max-batch."""

    def call(program: str, *options: str) -> tuple[int, dict]:
        (tmp_path / "program.py").write_text(program)
        arguments = ["max-batch", "--json", "--memory", str(MEMORY), *options, "program.py"]
        found = in_one("found = verb(*given)", arguments, tmp_path)
        assert found["out"], found["err"]
        return found["code"], json.loads(found["out"])

    return call


def rows(found: dict, size: int) -> list[dict]:
    return [one for one in found["tried"] if one["size"] == size]


def test_a_batch_of_dataloaders_in_multiples(ask):
    code, found = ask(LOADER, "--multiple", "4")
    assert code == 0 and found["answer"] == "found", found["reason"]
    assert found["next"] == found["size"] + 4 and found["size"] % 4 == 0 and found["whole"] is True
    assert all(one["fits"] for one in rows(found, found["size"]))
    (refused,) = rows(found, found["next"])
    assert refused["ooms"] > 0 and "it asked for" in found["reason"]
    # A sample takes 4 MiB: the gradient of the sum is expanded.
    assert 250 < found["size"] < 340


def test_what_fitted_predicts_though_the_first_size_did_not_fit(ask):
    code, found = ask(LOADER, "--start", "1000")
    assert code == 0 and [one["size"] for one in found["tried"]][:2] == [1000, 250], found["reason"]
    assert not found["tried"][0]["fits"] and found["tried"][1]["fits"]
    assert abs(found["predicted"] - found["size"]) <= 3


def test_evaluation_behind_the_steps_counts(ask):
    code, found = ask(EVALUATED, "--env", "BATCH")
    assert code == 0 and found["whole"] is True, found["reason"]
    held = 4 * found["size"] << 22  # four outputs
    assert held < MEMORY and held + (16 << 22) > MEMORY - found["context"] - (64 << 20)
    assert any(not one["fits"] and one["whole"] for one in found["tried"])


def test_a_caught_refusal_does_not_fit(ask):
    """Without steps nothing is predicted; the program goes on after the refusal."""
    code, found = ask(CAUGHT, "--arg=--batch", "--start", "64")
    assert code == 0 and found["predicted"] is None, found["reason"]
    assert found["size"] == (MEMORY - found["context"]) // (1 << 20) and found["next"] == found["size"] + 1


def test_no_room_for_a_librarys_handle_is_no_room(ask):
    code, found = ask(FOR_A_HANDLE, "--arg=--batch", "--start", "64")
    assert (code, found["size"], found["next"]) == (0, 1000, 1001), found["reason"]
    assert "CUBLAS_STATUS_ALLOC_FAILED" in found["reason"]
