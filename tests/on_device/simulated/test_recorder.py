"""Recording CUDA: each program of recorder_programs.py compares with PyTorch inside; here its report is judged."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuptimem import _core
from tests.conftest import Result
from tests.on_device.simulated import recorded

pytestmark = pytest.mark.cuda_torch

MIB = 1 << 20
ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}

Program = Callable[..., dict[str, Any]]


@pytest.fixture
def program(forked_on_device: Callable[..., Result], tmp_path: Path) -> Program:
    """Runs one and returns what it printed last."""

    def call(name: str, *, code: int = 0, memory: str = "24GiB", **keywords: Any) -> dict[str, Any]:
        trace = str(tmp_path / "run.cmem")
        done = forked_on_device(
            "-m", "tests.on_device.simulated.recorder_programs", name, trace, memory=memory, **keywords
        )
        assert done.code == code, done.err[-3000:]
        found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
        assert found.get("unknown_frees", 0) == 0
        return found

    return call


def test_a_start_in_mid_run(program: Program) -> None:
    found = program("midrun")
    assert found["problems"] == [] and found["ooms"] == []
    assert 0 < found["start"] < found["peak"]
    assert found["requested_peak"] < found["peak"]
    checked, differ = found["check"]
    assert checked > 0 and differ == 0
    count, size = found["segments"]
    assert count == 4 and size <= found["reserved_peak"]
    assert re.search(
        r"cuda:0: peak [\d.]+ MiB \(all but [\d.]+ KiB asked for\), reserved at most [\d.]+ MiB, "
        r"4 segments at the end, [\d.]+ MiB",
        found["summary"],
    )


def test_a_start_in_mid_run_with_expandable_segments(program: Program) -> None:
    found = program("midrun", env=EXPANDABLE)
    count, size = found["segments"]
    assert count > 1 and size > 40 << 20, "what was mapped before the start, too"
    assert found["reserved_peak"] >= found["peak"] and found["check"][0] > 0 and found["check"][1] == 0


def test_a_start_in_mid_run_with_cuda_malloc_async(program: Program) -> None:
    found = program("midrun_two_devices", env=ASYNC, devices=2)
    assert found["start"] > 0 and found["counts"][1] > 0
    assert all("held by no Python object" in problem for problem in found["problems"])


def test_a_start_in_mid_run_without_caching(program: Program) -> None:
    found = program("midrun_two_devices", env=UNCACHED, devices=2)
    assert found["start"] > 0 and found["counts"][1] > 0
    assert ["only those that Python objects hold are known" in problem for problem in found["problems"]] == [True]


def test_without_caching(program: Program) -> None:
    found = program("uncached", env=UNCACHED)
    assert found["start"] == 0 and found["peak"] == 4 + 777 + 4000 + 1_200_000 and found["end"] == 1_200_004
    assert found["ooms"] == [[1 << 50, 1_204_004, "uncached.<locals>.too_much"]]
    assert found["segments"] is None and found["reserved_peak"] is None and found["problems"] == []


def test_caching_goes_off_and_on(program: Program) -> None:
    found = program("switched")
    assert found["start"] == 4096 and found["end"] == 0
    assert found["peak"] == 4096 + 4004 + 4096 + 36_000_256
    assert found["requested_peak"] == 4000 + 4004 + 4008 + 36_000_000
    assert found["check"][0] > 0 and found["check"][1] == 0, "blocks that are not cached are in no total"
    assert found["segments"] == [0, 0] and found["problems"] == []


def test_cuda_malloc_async(program: Program) -> None:
    found = program("malloc_async", env=ASYNC)
    assert found["peak"] == 12 + 777 + 4000 + 1_200_000 and found["end"] == 1_200_012
    assert found["ooms"] == [[1 << 50, 1_200_012, "malloc_async.<locals>.too_much"]], "once, though it is tried twice"
    assert found["segments"] is None and found["problems"] == []


def test_an_allocator_that_tells_nobody(program: Program) -> None:
    found = program("pluggable")
    assert found["devices"] == []
    unknown, unseen = found["problems"]
    assert unknown == "blocks on the GPU before start are unknown: CUDAPluggableAllocator does not yet support snapshot"
    assert (
        unseen
        == "5 blocks on the GPU came from an allocator that reports nothing (CUDAPluggableAllocator): missing here"
    )
    assert f"! {unseen}" in found["summary"].splitlines()


def test_a_pool_with_an_allocator_of_its_own(program: Program) -> None:
    found = program("foreign_pool")
    assert found["segments"][0] == 1 and found["check"][1] == 0
    assert found["peak"] == found["end"] == found["start"] + 30 * MIB


def test_threads_on_two_devices(program: Program) -> None:
    found = program("threads", devices=2)
    assert found["end"] == 0 and found["left"] > 0
    assert all(checked > 0 and differ == 0 for checked, differ in found["checks"])


def test_beside_the_profiler_of_torch(program: Program) -> None:
    found = program("under_profiler")
    assert found["told_too"] > 0, "torch.profiler recorded nothing"
    assert found["check"][1] == 0


def test_graphs(program: Program) -> None:
    found = program("graphs")
    assert found["start"] > 0 and found["end"] < found["peak"] and found["check"][1] == 0


def test_out_of_memory(program: Program) -> None:
    found = program("refused", memory="2GiB")
    once = [1 << 30, found["allocated"], "refused.<locals>.too_much"]
    assert found["ooms"] == [once, once]
    assert "! 2 requests were refused and caught: at most 1.0 GiB asked at" in found["summary"]
    assert "with 900.0 MiB in use on cuda:0" in found["summary"]


def test_training(program: Program) -> None:
    found = program("training")
    assert found["threads"] == 2, "backward runs in the device's own thread"
    assert found["steps"] == 5 or found["steps"] == 6
    assert found["steady"] and found["unresolved"] == 0 and found["suspects"] == 0
    assert {"forward", "backward", "optimizer"} <= set(found["phases"])
    assert found["backward_bytes"] > 0 and found["backward_without_line"] == 0
    assert "AddmmBackward0" in found["operators"]


def test_a_leak_on_the_device(program: Program) -> None:
    assert program("leaking")["leaks"] == [["cuda:0", 4096.0, "leaking"]]


def test_a_window_has_the_same_numbers_in_its_own_file(program: Program) -> None:
    found = program("windows")
    assert found["file"] == {key: found[key] for key in found["file"]}
    assert found["start"] == 10 * 4096 and found["end"] == found["allocated"]
    slack = 10 * 4096 - sum(4 * (1001 + n) for n in range(10)) + 36_000_256 - 36_000_004
    assert found["requested_peak"] == found["peak"] - slack
    assert found["segments"][0] == 2


def test_past_the_bound(program: Program) -> None:
    found = program("compacted")
    assert found["compacted"], "the trace stayed below its bound"
    assert found["end"] == found["kept"] * 512 and found["segments"] == [1, 2 * MIB]
    assert found["check"][1] == 0 and found["requested_peak"] < found["peak"]


def test_killed(program: Program, tmp_path: Path) -> None:
    told = program("killed", code=-9)
    devices, _ = recorded.replay(_core.trace_dump(str(tmp_path / "run.cmem")))
    live = {str(address): [block.size, block.requested] for address, block in devices[0].live.items()}
    assert live == told["live"] and len(live) == 500
    assert {str(address): size for address, size in devices[0].segments.items()} == told["segments"]
    report = _core.analyze(str(tmp_path / "run.cmem"))["devices"][0]
    assert report["end"] == sum(size for size, _ in told["live"].values())


def test_all_hooks_come_off(program: Program) -> None:
    assert program("removed")["rows"] == [13, 0, 13, 0]


def test_the_order_of_events(program: Program) -> None:
    found = program("history")
    assert found["events"] > 40 and found["check"][1] == 0


def test_reads_of_what_no_kernel_computed(program: Program) -> None:
    assert program("host_reads")["reads"] == [
        ["cuda:0", 7, 28, "host_reads.<locals>.read", False],
        *[["cuda:0", 1, 800, "host_reads", True]] * 2,
    ]


def test_cuda_that_is_not_used(program: Program) -> None:
    assert program("hooks_without_device") == {"devices": ["cpu"], "problems": "", "reads": 0, "hook": True}


@pytest.mark.parametrize("env", [{}, ASYNC, UNCACHED], ids=["caching", "malloc_async", "uncached"])
def test_names_of_operators(program: Program, env: dict[str, str]) -> None:
    found = program("operators", env=env)
    names = {name for backward, name in found["names"] if not backward}
    assert {"aten::randn", "aten::mm", "aten::clamp_min", "aten::sum"} <= names
    assert {"MmBackward0", "ReluBackward0"} <= {name for backward, name in found["names"] if backward}
