"""Half copies of weights that autocast keeps until its context ends: by name, to the byte, and nothing else by it."""

import json
from collections.abc import Callable

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.torch

PROGRAM = """
import cuptimem, torch
from torch import nn

def weights(*layers):
    return sum(p.numel() for layer in layers for p in layer.parameters())

with cuptimem.profile("trace.cmem"):
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
def test_what_autocast_caches(forked: Callable[..., Result], call: Callable[..., Result], trains: bool) -> None:
    done = forked("-c", PROGRAM.format(trains=trains, steps=4))
    assert done.code == 0, done.err
    (account,) = json.loads(call("account", "trace.cmem", "--json").out)["accounts"]
    assert account["autocast cache"] == int(done.out)
