"""Two runs of one program side by side: where do they differ?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

PEAK, RESERVED = "allocated_bytes.all.peak", "reserved_bytes.all.peak"


@dataclass(frozen=True)
class Comparison:
    """Peaks in bytes, of the device that has the larger one. first: the first difference, "" where there is none."""

    program: str
    real_peak: int
    simulated_peak: int
    real_reserved: int
    simulated_reserved: int
    events: int
    first_event: str
    first_checkpoint: str

    @property
    def equal(self) -> bool:
        return not self.first_event and not self.first_checkpoint


def largest(facts: dict[str, Any], name: str) -> int:
    return max((row.get(name, 0) for row in facts["checkpoints"]), default=0)


def first_checkpoint(real: dict[str, Any], simulated: dict[str, Any]) -> str:
    for mine, other in zip_longest(real["checkpoints"], simulated["checkpoints"]):
        if mine is None or other is None:
            return f"{len(real['checkpoints'])} checkpoints against {len(simulated['checkpoints'])}"
        for name in {**mine, **other}:
            if mine.get(name) != other.get(name):
                return f"{mine['label']}, cuda:{mine['device']}: {name} {mine.get(name)} against {other.get(name)}"
    return ""


def first_event(real: dict[str, Any], simulated: dict[str, Any]) -> str:
    if len(real["events"]) != len(simulated["events"]):
        return f"{len(real['events'])} devices against {len(simulated['events'])}"
    for device, (mine, other) in enumerate(zip(real["events"], simulated["events"], strict=True)):
        for number, (left, right) in enumerate(zip_longest(mine, other)):
            if left != right:
                return f"cuda:{device}, event {number}: {left} against {right}"
    return ""


def compare(real: dict[str, Any], simulated: dict[str, Any], *, ordered: bool) -> Comparison:
    """ordered: the program's events come in the same order in every run."""
    if real["program"] != simulated["program"]:
        raise ValueError(f"{real['program']} cannot be compared with {simulated['program']}")
    return Comparison(
        program=real["program"],
        real_peak=largest(real, PEAK),
        simulated_peak=largest(simulated, PEAK),
        real_reserved=largest(real, RESERVED),
        simulated_reserved=largest(simulated, RESERVED),
        events=sum(len(device) for device in real["events"]),
        first_event=first_event(real, simulated) if ordered else "",
        first_checkpoint=first_checkpoint(real, simulated) if ordered else "",
    )
