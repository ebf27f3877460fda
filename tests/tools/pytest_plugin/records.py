"""Records of tests as the plugin makes them, and the environment of a run."""

from typing import Any

ENVIRONMENT: dict[str, Any] = {
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "cuptimem": "0.1.0",
    "devices": {"cpu": "x86_64 avx2"},
    "simulated": None,
}
KEY = "cpu-x86_64-avx2-torch-2.13"
H100 = "NVIDIA-H100-80GB-HBM3-torch-2.13"


def line(size: int, place: str, phase: str = "forward", source: str = "") -> list[Any]:
    """A contributor, with the text of its line where there is one."""
    return [size, 1, place, phase, *([source] if source else [])]


def figures(peak: int, contributors: list[list[Any]] | None = None, **others: Any) -> dict[str, Any]:
    whole = {"peak": peak, "allocated": 2 * peak, "allocations": 4, "leaked": 0, "reserved": None}
    return {**whole, "contributors": contributors or [], **others}


def record(nodeid: str, outcome: str = "passed", **devices: dict[str, Any]) -> dict[str, Any]:
    """A device is named as a word: cuda_0 is cuda:0."""
    named = {name.replace("_", ":"): what for name, what in devices.items()}
    return {"nodeid": nodeid, "outcome": outcome, "devices": named, "trace": None}


def environment(**changes: Any) -> dict[str, Any]:
    return {**ENVIRONMENT, **changes}


def with_gpus(*names: str) -> dict[str, Any]:
    gpus = {f"cuda:{i}": name for i, name in enumerate(names)}
    return environment(devices={"cpu": "x86_64 avx2", **gpus})
