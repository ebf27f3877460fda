"""The driver level under the real PyTorch: programs compare with the device's log inside; here numbers are judged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Result
from tests.on_device.simulated import device, foreign

pytestmark = pytest.mark.cuda_torch

MIB = 1 << 20
CONF = "PYTORCH_CUDA_ALLOC_CONF"
BACK_ENDS = {
    "native": {},
    "expandable": {CONF: "expandable_segments:True"},
    "async": {CONF: "backend:cudaMallocAsync"},
    "uncached": {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    "pluggable": {"DRIVER_PLUGGABLE": "1"},
}
SUMS = ("tensors", "rounding", "cached", "driver_rounding", "pool_slack", "context", "residual")

Program = Callable[..., dict[str, Any]]


@pytest.fixture
def program(forked_on_device: Callable[..., Result], tmp_path: Path) -> Program:
    """Runs one and returns what it printed last."""

    def call(name: str, *, code: int = 0, **keywords: Any) -> dict[str, Any]:
        done = forked_on_device(
            "-m",
            "tests.on_device.simulated.driver_programs",
            name,
            str(tmp_path),
            memory="24GiB",
            log=tmp_path / "log",
            report=tmp_path / "report",
            **keywords,
        )
        assert done.code == code, done.err[-3000:]
        return dict(json.loads(done.out.splitlines()[-1]))

    return call


def adds_up(found: dict[str, Any], device: int = 0) -> dict[str, Any]:
    """Every row of the ledger sums to what is in use; returns the one of the end."""
    rows = [row for row in found["ledger"] if row["device"] == f"cuda:{device}"]
    for row in rows:
        total = sum(row[key] for key in SUMS) + sum(one["bytes"] for one in row["driver"]) + (row["others"] or 0)
        assert total == row["used"], row
        assert row["quiet"], row
    (end,) = [row for row in rows if row["what"] == "end"]
    return dict(end)


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_every_kind_of_memory(back_end: str, program: Program) -> None:
    found = program("everything", env=BACK_ENDS[back_end])
    driver, events = found["driver"], found["events"]
    (used, context, handles) = found["used"][0]
    assert found["looks"] == 12 and found["given"] == 14 and found["lost"] == 0
    assert events["failed"] == 1 == driver["failed_frees"]
    assert events["device"] >= 10 and events["free"] >= 18
    for kind in ("managed", "array", "registered", "reserved", "physical", "mapped", "async", "reference"):
        assert events[kind] >= 1, kind
    assert driver["mode"] == "callbacks" and driver["reason"] == "" and driver["unknown_frees"] == 0
    check = driver["record_check"]
    assert check["matched"] == check["records"] > 25
    assert (check["missing"], check["differ"], check["alone"], check["dropped"]) == (0, 0, 0, 0)

    libraries = set(found["libraries"])
    cublas = f"libcublas.so.{device.cuda()}"
    torch = {"libc10_cuda.so", "libtorch_cuda.so"} if back_end != "pluggable" else {"libtorch_cuda.so"}
    assert libraries == {*torch, foreign.NAME, cublas}
    assert found["cublas"] == [[cublas, handles, found["product_line"]]] and handles == 8 * MIB

    end = adds_up(found)
    assert end["used"] == used
    beside = {(one["library"], one["bytes"]) for one in end["driver"] if one["library"] != "libc10_cuda.so"}
    if back_end != "pluggable":
        assert beside == {(cublas, 8 * MIB), (foreign.NAME, 4 * MIB)}
    assert (end["context"], end["residual"]) == (context, 0)
    # What pages of 2 MiB have beyond what was asked for.
    assert (end["driver_rounding"] > 0) == (back_end in ("uncached", "pluggable"))
    assert (end["pool_slack"] > 0) == (back_end == "async")
    if back_end in ("native", "expandable"):
        assert found["unfilled"] == [0] and found["segments"] > 0
        assert end["tensors"] + end["rounding"] + end["cached"] == found["reserved_end"]
    assert found["moments"] >= 2


HOSTILE = [
    ("drop=3,reorder,wrap,late,foreign", "callbacks", ""),
    ("taken", "slots", "Nsight Systems"),
    ("nodriver", "slots", "driver"),
]


@pytest.mark.parametrize(("hostile", "mode", "said"), HOSTILE)
def test_tensors_are_unharmed(hostile: str, mode: str, said: str, program: Program) -> None:
    slots = {"DRIVER_BY_SLOT": "1"} if mode == "slots" else {}
    found = program("unharmed", env=slots, more={"CUPTIMEM_SIM_HOSTILE": hostile})
    driver = found["driver"]
    if hostile == "taken" and device.cuda() == 12:
        said = "holds CUPTI"  # whose release does not say who
    assert found["peak"] == found["max"] and found["lost"] == 0 and found["problems"] == []
    assert driver["mode"] == mode and said in driver["reason"]
    assert driver["unknown_frees"] == 0 and driver["allocations"] > 20
    assert (found["by_slot"] > 40) == (mode == "slots")
    if mode == "callbacks":
        check = driver["record_check"]
        assert 0 < check["missing"] <= check["dropped"] and check["differ"] == check["alone"] == 0
        adds_up(found)


def test_a_start_in_mid_run(program: Program) -> None:
    found = program("midrun")
    end = adds_up(found)
    ((used, context, _),) = found["used"]
    # The library's, and two segments: known to the tensor level alone, from its walk at the start.
    assert found["driver"]["unknown_frees"] == 3 and end["used"] == used
    assert end["tensors"] + end["rounding"] + end["cached"] == used - context - 6 * MIB
    # What the library was given before is freed meanwhile; PyTorch's segments of before are in no context.
    assert (end["context"], end["residual"]) == (context + 4 * MIB, -4 * MIB)
    assert not end["context_measured"]


def test_kernels(program: Program) -> None:
    found = program("kernels")
    assert found["launches"] > 40 and found["here"] >= 40 and found["streams"] == 2
    assert (found["never_ran"], found["never_launched"], found["unnamed"]) == (0, 0, 0)
    kernels = found["kernels"]
    assert kernels["launches"] == found["launches"] == kernels["ran"] and kernels["dropped"] == 0
    assert sum(row["count"] for row in kernels["names"]) == kernels["ran"]
