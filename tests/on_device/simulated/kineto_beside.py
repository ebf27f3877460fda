"""torch.profiler before, inside and around profiles of cuptimem; prints one line of JSON. For test_kineto_beside.py."""

import json
import os
import sys
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import cuptimem
from cuptimem import _core
from tests.on_device.simulated import driver_events

x = torch.ones(8, device="cuda")
found: dict[str, Any] = {}


def theirs(work: Any) -> int:
    """Kernels that torch.profiler has seen of it."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        work()
        torch.cuda.synchronize()
    if "TEARDOWN_CUPTI" in os.environ:
        # A thread of Kineto's asks for the detaching; it is done inside the callback of some later call.
        time.sleep(0.3)
        x.add_(1)
        time.sleep(0.3)
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events())


def two_kernels() -> None:
    (x + 1).relu()


def segment() -> None:
    torch.cuda.empty_cache()
    torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()


def given_out(path: str) -> dict[str, int]:
    """How many times memory was given out, and contexts were seen."""
    given = driver_events.read(_core.trace_dump(path)).events
    contexts = sum(event.kind == "context" for event in given)
    return {"memory": sum(event.new for event in given) - contexts, "contexts": contexts}


def in_ours(name: str) -> None:
    path = f"{name}.cmem"
    with cuptimem.profile(path):
        segment()
        modes = [_core.cupti_state()["mode"]]
        kernels = [theirs(two_kernels)]
        modes.append(_core.cupti_state()["mode"])
        segment()
        kernels.append(theirs(two_kernels))
    found[name] = {"modes": modes, "kernels": kernels, "events": given_out(path)}


def around() -> None:
    two_kernels()
    with cuptimem.profile("around.cmem"):
        two_kernels()
        found["mode around"] = _core.cupti_state()["mode"]


for what in sys.argv[1:]:
    if what == "theirs":
        found[what] = theirs(two_kernels)
    elif what == "around":
        found[what] = theirs(around)
    else:
        in_ours(what)
print(json.dumps(found))
