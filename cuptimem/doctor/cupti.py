"""What follows from selftest_cuda.py's answer: whether the driver level works, and what a lack of it costs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import Any, Literal, NamedTuple

from cuptimem import environ
from cuptimem.doctor.selftest_cuda import DRIVER, NVML
from cuptimem.record.driver_level import version_text
from cuptimem.report.ledger import split_reason

COST = "what CUDA hands out to others than PyTorch is in no account; there is no ledger"
SLOTS_COST = "what libraries take of the driver directly is in the ledger's context or residual, without name and line"
OTHERS_COST = "other processes' memory on the GPU cannot be separated from the driver's own"
_IN_CONTAINER = "a container needs --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility"
_INIT = {  # CUresult of cuInit: what it means
    100: ("no device is visible to it", "see nvidia-smi, CUDA_VISIBLE_DEVICES; " + _IN_CONTAINER),
    3: ("it does not initialise", "see nvidia-smi"),
    34: ("it is the toolkit's stub and no driver", "take the stubs folder out of LD_LIBRARY_PATH"),
    802: ("the system is not ready yet", "start nvidia-fabricmanager"),
    803: ("its parts are of different releases", "reboot, or install the driver again"),
    804: ("its compatibility package does not fit this device", "remove cuda-compat, or update the driver"),
    999: ("it fails for an unknown reason", "see nvidia-smi and dmesg"),
}


class Finding(NamedTuple):
    """A line of doctor's in the making."""

    name: str
    state: Literal["ok", "note", "warning"]
    text: str
    cost: str = ""
    fix: str = ""


def library_text(path: str) -> str:
    """The file and its wheel's version. CUPTI itself is not asked: without a driver some releases do not survive it."""
    for name in ("nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti-cu11"):
        try:
            wheel = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        files = (os.path.realpath(str(wheel.locate_file(file))) for file in wheel.files or ())
        if os.path.realpath(path) in files:
            return f"{path}, of {name} {wheel.version}"
    return path


def findings(
    about: Mapping[str, Any], library: str = "", environment: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """about: what selftest_cuda.py found (child.ask_cuda); library: the libcupti that torch brought, "" if none."""
    if about["died"]:
        yield Finding(
            "CUPTI",
            "warning",
            f"the process that asked {about['asked']} {about['died']}",
            "a program that uses a GPU may end like this, too",
            "see nvidia-smi; cuptimem run --no-driver asks CUPTI for nothing",
        )
        return
    if about.get("missing"):
        text = f"no NVIDIA driver is here ({DRIVER})"
        yield Finding(
            "CUPTI",
            "note",
            text + (f"; libcupti would be {library_text(library)}" if library else ""),
            fix=f"nothing without a GPU; else install the driver; {_IN_CONTAINER}",
        )
        return
    if about["init"] != 0:
        why, fix = _INIT.get(about["init"], (f"it fails with error {about['init']}", "see nvidia-smi"))
        yield Finding("CUPTI", "warning", f"the NVIDIA driver cannot be used: {why}", COST, fix)
        return
    if "state" not in about:
        yield Finding("CUPTI", "warning", f"nothing was recorded: {about['record_problem']}", COST)
        return
    state = about["state"]
    mode = state["mode"]
    if mode == "callbacks":
        shared = ", beside other profilers" if state["v2"] else ""
        records = "with records" if state["activity"] else "without records"
        yield Finding("CUPTI", "ok", f"{state['path']}, {version_text(state['version'])}: callbacks{shared}, {records}")
    else:
        cause, fix = split_reason(state["reason"] or "it did not answer in time")
        text = cause if mode == "slots" else f"nothing at driver level: {cause}"
        cost = SLOTS_COST if mode == "slots" else COST
        path = f"; {library_text(state['path'])}" if state["path"] else ""
        yield Finding("CUPTI", "warning", text + path, cost, fix or "see nvidia-smi")
    if about["nvml"]:
        yield Finding("NVML", "ok", f"{NVML}: memory of other processes is known")
    else:
        yield Finding("NVML", "warning", f"{NVML} is not found", OTHERS_COST, _IN_CONTAINER)
    yield from _settings(environ.obeyed() if environment is None else environment)


def _settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    injected = environment.get("CUDA_INJECTION64_PATH", "")
    if injected:
        yield Finding(
            "injection",
            "warning",
            f"CUDA_INJECTION64_PATH={injected}: a tool is loaded into every CUDA program, and most hold CUPTI",
            COST,
            "run without it",
        )
    capabilities = environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
    given = {word.strip() for word in capabilities.split(",")}
    lacking = [word for word in ("compute", "utility") if word not in given]
    if capabilities and "all" not in given and lacking:
        yield Finding(
            "capabilities",
            "warning",
            f"NVIDIA_DRIVER_CAPABILITIES={capabilities} lacks {' and '.join(lacking)}",
            OTHERS_COST,
            "start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
