"""Workspaces of cuBLAS, cuBLASLt and cuDNN: no line and no module of the program has them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.on_device.simulated.conftest import Done

pytestmark = pytest.mark.cuda_torch

PROGRAM = """
import sys
import cuptimem
import torch
with cuptimem.profile(sys.argv[1]) as prof:
    net = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False), torch.nn.Linear(64, 8)).cuda()
    for _ in range(6):
        net(torch.randn(32, 64, device="cuda")).sum().backward()
        net.zero_grad()
blocks = [one for peak in prof.report.peaks if peak.device == "cuda:0" for one in peak.contributors]
found = [one for one in blocks if one.category == "workspace"]
kept = [one for one in blocks if one.category in ("kept", "unknown")]
print(sum(one.bytes for one in found), kept, {one.where for one in found}, {one.module for one in found})
"""


def test_of_matrix_products(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    size = 4096 * 1024 * 2 + 16 * 1024 * 8
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}
    done = forked_on_device("-c", PROGRAM, str(tmp_path / "a.cmem"), env=environment)
    assert done.code == 0, done.err[-3000:]
    assert done.out.splitlines()[-1] == f'{2 * size} [] {{"(a library\'s workspace)"}} {{None}}'


CONVOLUTION = """
import torch
with torch.no_grad():
    x = torch.zeros(8, 16, 64, 64, device="cuda")
    w = torch.zeros(16, 16, 3, 3, device="cuda")
    torch.nn.functional.conv2d(x, w, padding=1)
"""


def test_of_a_convolution(simulate: Callable[..., Done], tmp_path: Path) -> None:
    trace = str(tmp_path / "a.cmem")
    done = simulate(CONVOLUTION, "--conv-workspace", "1MiB", "-o", trace)
    assert done.code == 0, done.err[-3000:]
    rows = simulate("", "--by", "category", "--what", "allocated", trace, verb="table").answer["rows"]
    assert {row["category"]: row["bytes"] for row in rows}["workspace"] == 1 << 20


RECURRENT = """
import torch
import cuptimem

net = torch.nn.LSTM(64, 128, num_layers=2, dropout=0.1).cuda()
x = torch.randn(50, 32, 64, device="cuda")
with cuptimem.profile() as prof:
    for step in range(2):
        out, _ = net(x)
        out.sum().backward()
        net.zero_grad()
        del out
made = {}
for row in next(one for one in prof.report.devices if one.name.startswith("cuda")).peak.contributors:
    made[row.category] = made.get(row.category, 0) + row.bytes
each = 50 * 32 * 128 * 4  # of a layer
print(made.get("kept", 0), made["activation"] >= 2 * 6 * each, made["workspace"] >= 4 * each)
"""


def test_of_a_recurrent_network(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    """What it reserves for backward is saved by autograd. States of dropout's random numbers stay."""
    (tmp_path / "program.py").write_text(RECURRENT)
    done = forked_on_device("program.py")
    assert done.code == 0, done.err[-3000:]
    assert done.out.splitlines()[-1] == "0 True True"
