"""How a child process gets a simulated device."""

import functools
import os
import re
from collections.abc import Mapping
from pathlib import Path

import cudasim

ROOT = Path(__file__).resolve().parents[3]


def interpreter() -> Path:
    """Where a Python with PyTorch's CUDA build should be: CUPTIMEM_CUDA_PYTHON, else .venv-cuda's."""
    return Path(os.environ.get("CUPTIMEM_CUDA_PYTHON") or ROOT / ".venv-cuda" / "bin" / "python")


@functools.cache
def cuda() -> int:
    """What that PyTorch was built for."""
    about = next(interpreter().parents[1].glob("lib/python3*/site-packages/torch/version.py")).read_text()
    found = re.search(r"^cuda\b.*'(\d+)\.", about, re.MULTILINE)
    return int(found[1]) if found else 13


def environment(
    *,
    device: str = "h100",
    memory: str = "",
    devices: int = 1,
    log: Path | None = None,
    report: Path | None = None,
    timing: bool = False,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables to add to a child's environment. memory: of each device, "24GiB"; the profile's own if empty.

    FileNotFoundError where the simulator was not built.
    """
    found = {
        **cudasim.variables(),
        "CUPTIMEM_SIM_DEVICE": device,
        "CUPTIMEM_SIM_DEVICES": str(devices),
    }
    if memory:
        found["CUPTIMEM_SIM_MEMORY"] = memory
    if log is not None:
        found["CUPTIMEM_SIM_LOG"] = str(log)
    if report is not None:
        found["CUPTIMEM_SIM_REPORT"] = str(report)
    if timing:
        found["CUPTIMEM_SIM_TIMING"] = "1"
    return {**found, **(more or {})}
