"""How a child process gets a simulated device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import cudasim


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
