"""PyTorch's own profiler (Kineto, the real one) records the simulated device through its CUPTI."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

STEPS_PER_CYCLE, THREADS, STEPS_PER_THREAD = 2, 4, 3
WRONG = ("unnamed", "instant", "without call", "before call", "disorder")


@pytest.fixture(scope="module")
def program() -> str:
    return str(Path(__file__).parent / "kineto_program.py")


def test_torch_profiler(forked_on_device: Callable[..., Result], program: str, tmp_path: Path) -> None:
    done = forked_on_device(program, str(tmp_path))
    assert done.code == 0, done.err[-3000:]
    # Kineto tells of its start and stop on standard error, and of everything that it finds wrong.
    assert [line for line in done.err.splitlines() if not line.startswith("USDT:")] == []
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    first = found["first"]
    profiles = [first, found["second"], *found["cycles"], found["threads"]]

    assert all(profile[wrong] == 0 for profile in profiles for wrong in WRONG), profiles
    assert all(profile["device time"] for profile in profiles)
    assert first["kernels"] > 10 and first["names"] > 5
    assert first["without operator"] == 0
    assert first["calls"]["cudaLaunchKernel"] == first["kernels"]
    assert first["copies"]["Memcpy HtoD (Pinned -> Device)"] == 1
    assert first["memory"] > 10 and first["device memory"]
    assert first["finished"] >= 1
    # Every kernel and copy has its flow from the call that launched it.
    assert first["flows"][0] >= first["kernels"] + sum(first["copies"].values())

    assert found["second"] == first
    assert len(found["cycles"]) == 2
    for cycle in found["cycles"]:
        assert cycle["kernels"] == STEPS_PER_CYCLE * first["kernels"]
        assert cycle["copies"] == {name: STEPS_PER_CYCLE * count for name, count in first["copies"].items()}
        assert cycle["without operator"] == 0
    assert found["threads"]["kernels"] == THREADS * STEPS_PER_THREAD * first["kernels"]
    assert found["threads"]["calls"]["cudaLaunchKernel"] == found["threads"]["kernels"]


DETACHING = """
import time, torch
from torch.profiler import ProfilerActivity, profile

x = torch.ones(8, device="cuda")
for _ in range(3):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
        (x + 1).relu()
        torch.cuda.synchronize()
    print(sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profiler.events()))
    # A thread of Kineto's asks for the detaching; it is done inside the callback of some later call.
    time.sleep(0.3)
    x.add_(1)
    time.sleep(0.3)
"""


def test_torch_profiler_that_detaches_from_cupti_between_its_profiles(forked_on_device: Callable[..., Result]) -> None:
    done = forked_on_device("-c", DETACHING, env={"TEARDOWN_CUPTI": "1"})
    assert done.code == 0, done.err[-3000:]
    assert done.out.split() == ["2", "2", "2"]
