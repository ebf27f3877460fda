"""What real programs' blocks are for, of those alive at the end: arithmetic on the shapes of each program."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.torch

Categorised = Callable[[str], dict[str, int]]

START = """
import collections
import torch
from torch import nn
net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64))
"""
OWN = 4 * (128 * 256 + 256 + 256 * 64 + 64)  # bytes of its parameters
ROW = 4 * 64  # bytes of a row of its results

CACHED = '        cache["probabilities"] = out.detach().softmax(-1)\n'
CLOSURE = """
optimizer, cache = torch.optim.SGD(net.parameters(), 0.1), {}
for _ in range(8):
    x = torch.randn(512, 128)
    def closure():
        out = net(x)
        loss = out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        cache["probabilities"] = out.detach().softmax(-1)
        return loss
    optimizer.step(closure)
"""
# Made before backward, as a mask for the loss is: it outlives the call that runs backward.
EARLIER = CLOSURE.replace(CACHED, "").replace("        loss =", f"{CACHED}        loss =")
STEPPING = """
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ATTRIBUTE = f"""
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def step(x):
    out = net(x)
    step.last = out.detach().softmax(-1)
    loss = out.pow(2).mean()
{STEPPING}
for _ in range(8):
    x = torch.randn(512, 128)
    step(x)
"""
IN_A_CALLEE = f"""
optimizer, seen = torch.optim.SGD(net.parameters(), 0.1), {{}}
def loss_of(x):
    out = net(x)
    seen["out"] = out.detach().exp()
    return out.pow(2).mean()
def step(x):
    loss = loss_of(x)
{STEPPING}
for x in torch.utils.data.DataLoader(torch.randn(4096, 128), batch_size=512):
    step(x)
"""
MASKS = f"""
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def mask_of():
    return torch.rand(512, 64) > 0.5
def step(x):
    out = net(x)
    mask = mask_of()
    loss = (out * mask).pow(2).mean()
{STEPPING}
def loop():
  for _ in range(8):
    x = torch.randn(512, 128)
    step(x)
    out = net(x)
    mask = mask_of()
    loss = (out * mask).pow(2).mean()
{STEPPING}
loop()
"""
PENALTY = f"""
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def penalty(x):
    mixed = (x * 0.5).requires_grad_(True)
    slope, = torch.autograd.grad(net(mixed).sum(), mixed, create_graph=True)
    return (slope.norm(2, dim=1) - 1).pow(2).mean()
for _ in range(8):
    x = torch.randn(512, 128)
    loss = net(x).pow(2).mean() + penalty(x)
{STEPPING}
"""
OWN_OPTIMIZER = """
class Plain(torch.optim.Optimizer):
    def step(self, closure):
        with torch.enable_grad():
            loss = closure()
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                p.sub_(p.grad, alpha=0.1)
optimizer, norms = Plain(net.parameters(), {}), []
def one(x):
    optimizer.zero_grad()
    out = net(x)
    norms.append(out.detach().softmax(-1))
    out.pow(2).mean().backward()
for _ in range(8):
    x = torch.randn(512, 128)
    optimizer.step(lambda: one(x))
"""
LOOP = """
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train():
    x = torch.randn(32, 128)
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RING = f"""
{LOOP}
recent = collections.deque(maxlen=10)
for _ in range(30):
    train()
    with torch.no_grad():
        recent.append(torch.softmax(torch.randn(512, 64), -1))
"""
DETACHED = """
optimizer, outs = torch.optim.SGD(net.parameters(), 0.1), []
for _ in range(20):
    x = torch.randn(32, 128)
    out = net(x)
    optimizer.zero_grad()
    out.pow(2).mean().backward()
    optimizer.step()
    outs.append(out.detach())
"""
EVALUATION = f"""
{LOOP}
for _ in range(2):
    for _ in range(6):
        train()
    with torch.no_grad():
        results = [net(torch.randn(512, 128)) for _ in range(12)]
"""
SHADOW = f"""
{LOOP}
shadow = {{name: p.detach().clone() for name, p in net.named_parameters()}}
for _ in range(10):
    train()
    with torch.no_grad():
        for name, p in net.named_parameters():
            shadow[name].lerp_(p, 0.01)
"""
LOADED = f"""
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    torch.save({{"a": torch.randn(1000, 64)}}, os.path.join(folder, "a.pt"))
    checkpoint = torch.load(os.path.join(folder, "a.pt"))
{LOOP}
for _ in range(4):
    train()
"""


BY_HAND = """
weight = torch.randn(128, 64).requires_grad_()
for _ in range(8):
    attacked = torch.randn(512, 128, requires_grad=True)
    (attacked @ weight).square().mean().backward()
UPDATE
"""
IN_PLACE = BY_HAND.replace(
    "UPDATE",
    """    with torch.no_grad():
        weight -= 0.1 * weight.grad
    weight.grad = None""",
)
OF_DATA = BY_HAND.replace(
    "UPDATE",
    """    weight.data -= 0.1 * weight.grad.data
    weight.grad.data.zero_()""",
)


@pytest.fixture
def bytes_by_category(forked: Callable[..., Result], call: Callable[..., Result], tmp_path: Path) -> Categorised:
    """Of what is alive at the end of a program, as `cuptimem run` records it."""

    def of(program: str) -> dict[str, int]:
        (tmp_path / "program.py").write_text(START + program)
        done = forked("-m", "cuptimem", "run", "-q", "-o", "a.cmem", "program.py")
        assert done.code == 0, done.err
        said = call("table", "--by", "category", "--what", "end", "--json", "a.cmem")
        found = {row["category"]: row["bytes"] for row in json.loads(said.out)["rows"]}
        return {name: found.get(name, 0) for name in ("optimizer state", "kept", "loaded", "parameter", "unknown")}

    return of


@pytest.mark.parametrize(
    "program, kept",
    [
        pytest.param(CLOSURE, 512 * ROW, id="a closure's cache"),
        pytest.param(EARLIER, 512 * ROW, id="a closure's cache, before backward"),
        pytest.param(ATTRIBUTE, 512 * ROW, id="an attribute, before backward"),
        pytest.param(IN_A_CALLEE, 512 * ROW, id="a callee's, before backward, from a loader"),
        pytest.param(MASKS, 0, id="masks of a function and of a loop"),
        pytest.param(PENALTY, 0, id="a leaf of a penalty's graph"),
        pytest.param(OWN_OPTIMIZER, 8 * 512 * ROW, id="a closure's list"),
        pytest.param(RING, 10 * 512 * ROW, id="a ring"),
        pytest.param(DETACHED, 20 * 32 * ROW, id="results of the graph"),
        pytest.param(EVALUATION, 12 * 512 * ROW, id="an evaluation's results"),
        pytest.param(SHADOW, OWN, id="a copy of the model"),
    ],
)
def test_what_is_kept(program: str, kept: int, bytes_by_category: Categorised) -> None:
    found = bytes_by_category(program)
    assert found == {"optimizer state": 0, "kept": kept, "loaded": 0, "parameter": OWN, "unknown": 0}


def test_what_comes_from_a_file(bytes_by_category: Categorised) -> None:
    found = bytes_by_category(LOADED)
    assert (found["loaded"], found["unknown"]) == (1000 * ROW, 0)


@pytest.mark.parametrize("program", [IN_PLACE, OF_DATA], ids=["in place", "of data"])
def test_what_is_trained_by_hand_is_a_parameter_and_an_attacked_input_is_none(
    program: str, bytes_by_category: Categorised
) -> None:
    assert bytes_by_category(program)["parameter"] == OWN + 4 * 128 * 64
