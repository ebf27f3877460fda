"""The figures that are logged, by name: what one reading of a stretch of the run says. docs/trainers.md lists them."""

import os
from collections.abc import Mapping
from typing import Any

PREFIX = "memory/"
TRAIN = "train"  # the phase whose figures have no phase in their names

# What a peak is made of. The parts sum to it: what is in none of these is "other".
PARTS = {
    "parameter": "parameters",
    "buffer": "parameters",
    "gradient": "gradients",
    "bucket": "gradients",
    "optimizer state": "state",
    "activation": "activations",
    "kept": "kept",
    "before start": "kept",  # of a stretch: alive since an earlier one, and no walk has named it
}
_NAMES = (*dict.fromkeys(PARTS.values()), "other")


def used(raw: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of each device that the driver was asked for in the stretch, when it was last asked."""
    return {row["device"]: row["points"][-1][1] for row in raw["device_timeline"] if row["points"]}


def of_stretch(raw: Mapping[str, Any], phase: str, used: Mapping[str, int]) -> dict[str, int]:
    """Figures of what core.analyze() returned for one stretch. used: of devices, as last known."""
    place = PREFIX if phase == TRAIN else f"{PREFIX}{phase}/"
    found: dict[str, int] = {}
    for device in raw["devices"]:
        name = f"{place}{device['device']}/"
        found[f"{name}peak_bytes"] = device["peak"]
        found[f"{name}live_bytes"] = device["end"]
        found.update((f"{name}peak_{part}_bytes", size) for part, size in _parts(device).items())
        if device["reserved_peak"] is not None:
            found[f"{name}reserved_bytes"] = device["reserved_peak"]
        if device["device"] in used:
            found[f"{name}used_bytes"] = used[device["device"]]
    return found


def _parts(device: Mapping[str, Any]) -> dict[str, int]:
    sizes = dict.fromkeys(_NAMES, 0)
    for size, _, _, _, _, _, category, *_ in device["contributors"]:
        sizes[PARTS.get(category, "other")] += size
    sizes["other"] += device["peak"] - sum(sizes.values())
    return sizes


def merge(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Figures of two stretches as of one: peaks and what is reserved are those of the higher one, with its parts."""
    merged = {**before, **now}
    for name, size in before.items():
        if name.endswith("/peak_bytes") and size > now.get(name, 0):
            start = name.removesuffix("bytes")
            merged.update((one, value) for one, value in before.items() if one.startswith(start))
        elif name.endswith("/reserved_bytes"):
            merged[name] = max(size, now.get(name, 0))
    return merged


def process_bytes() -> int:
    """Resident memory of this process, now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
