"""A small training with one flaw, chosen by name; each is recorded in a file of its own in this folder.

Imported by a program of test_leaks.py, whose arguments are the names.
"""

import gc
import sys
from collections.abc import Callable
from typing import Any

import torch

import cuptimem

STEPS = 24
KEPT_BYTES = 4 * 1000  # of each tensor that a flaw keeps


class Owner:
    """Refers to itself, as objects with callbacks or parents often do."""

    def __init__(self, tensor: Any) -> None:
        self.me, self.tensor = self, tensor


def keep_outputs(state: dict[str, Any], x: Any, loss: Any) -> None:
    state.setdefault("outputs", []).append(x.new_ones(1000))


def sum_losses(state: dict[str, Any], x: Any, loss: Any) -> None:
    state["total"] = state.get("total", 0) + loss


def grow(state: dict[str, Any], x: Any, loss: Any) -> None:
    new = x.new_ones(1000)
    state["all"] = torch.cat([state["all"], new]) if "all" in state else new


def cycles(state: dict[str, Any], x: Any, loss: Any) -> None:
    Owner(x.new_ones(1000))


def nothing(state: dict[str, Any], x: Any, loss: Any) -> None:
    state["last"] = loss.item()


def train(flaw: Callable[[dict[str, Any], Any, Any], None]) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters())
    state: dict[str, Any] = {}
    with cuptimem.profile(f"{flaw.__name__}.cmem"):
        for _ in range(STEPS):
            x = torch.randn(8, 16)
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            flaw(state, x, loss)


def waiting(state: dict[str, Any], x: Any, loss: Any) -> None:
    cycles(state, x, loss)


def main() -> None:
    torch.manual_seed(0)
    for name in sys.argv[1:]:
        gc.collect()
        # Off: only what the program asks for is collected. "waiting" leaves it on, with a full one never due.
        gc.set_threshold(1_000_000, 1000, 1000)
        if name == "cycles":
            gc.disable()
        train(globals()[name])
        gc.enable()
