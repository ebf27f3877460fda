"""python -m evidence.gpu.with_torch NAME FOLDER: the driver level under PyTorch on whatever device is there, as
JSON.

Allocator back ends are chosen by the environment, as PyTorch reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import cuptimem
from cuptimem import _core
from tests.on_device.simulated.ending import leave

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def train(steps: int = 3) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps):
        model(torch.ones(256, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def level(trace: Path) -> dict[str, Any]:
    """What the recording says of the driver level."""
    found = _core.analyze(str(trace))
    driver, ledger = found["driver"], [row for row in found["ledger"] if row["what"] == "end"]
    return {
        **{
            key: driver[key]
            for key in ("mode", "reason", "cupti", "allocations", "frees", "unknown_frees", "record_check")
        },
        "bytes": sum(device["bytes"] for device in driver["devices"]),
        "libraries": sorted({row["library"] for device in driver["devices"] for row in device["live"]}),
        "ledger": [
            {
                key: row[key]
                for key in (
                    "used",
                    "tensors",
                    "rounding",
                    "cached",
                    "driver_rounding",
                    "pool_slack",
                    "context",
                    "residual",
                )
            }
            for row in ledger
        ],
    }


def kernels(profiler: Any) -> int:
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def ours_first(folder: Path) -> dict[str, Any]:
    """We subscribe; then torch.profiler comes, and comes again after us."""
    with cuptimem.profile(folder / "run.cmem"):
        train()
        with profile(activities=BOTH, acc_events=True) as inside:
            train()
        train()
    with profile(activities=BOTH, acc_events=True) as after:
        train()
    return {"kernels_inside": kernels(inside), "kernels_after": kernels(after), **level(folder / "run.cmem")}


def theirs_first(folder: Path) -> dict[str, Any]:
    """torch.profiler has been there before us; then we come, and come again while it records."""
    with profile(activities=BOTH, acc_events=True) as before:
        train()
    with cuptimem.profile(folder / "run.cmem"):
        train()
    with profile(activities=BOTH, acc_events=True) as around, cuptimem.profile(folder / "again.cmem"):
        train()
    found = {"kernels_before": kernels(before), "kernels_around": kernels(around)}
    return {**found, **level(folder / "run.cmem"), "again": level(folder / "again.cmem")}


def back_end(folder: Path) -> dict[str, Any]:
    """A training, pinned memory and, where it can be captured, a graph that allocates."""
    with cuptimem.profile(folder / "run.cmem"):
        train()
        pinned = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
        graph, captured = torch.cuda.CUDAGraph(), ""
        try:
            x = torch.ones(1000, 1000, device="cuda")
            with torch.cuda.graph(graph):
                y = (x * 2).relu() @ x
            before = _core.capture_counts()["events"]
            for _ in range(10):
                graph.replay()
            torch.cuda.synchronize()
            captured = f"{_core.capture_counts()['events'] - before} events in 10 replays"
            del y
        except RuntimeError as error:
            captured = str(error).splitlines()[0]
        reserved = 0
        if torch.cuda.get_allocator_backend() != "pluggable":
            reserved = torch.cuda.memory_reserved()
    del pinned
    return {"reserved": reserved, "graph": captured, **level(folder / "run.cmem")}


PROGRAMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    program.__name__: program for program in (ours_first, theirs_first, back_end)
}


if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](Path(sys.argv[2]))))
    leave()
