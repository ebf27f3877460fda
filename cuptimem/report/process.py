"""Growth of the whole process that no tensor explains: resident memory against live bytes, over the steps."""

import bisect
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cuptimem.report.brief import Brief

if TYPE_CHECKING:
    from cuptimem.report.model import Report, Step

HOST = ("cpu", "pinned")  # devices whose bytes are memory of the process
_STEPS = 20  # with fewer of them most is warm-up
_WARM_UP = 10  # the first of so many equal parts loads libraries and builds state
_PARTS = 4  # of the steps behind it
_RISES = 2  # of the three from part to part; a single one is a switch of phases, or something that is loaded once
_LEAST = 8 << 20  # heap that threads share wanders by some MiB
_SHARE = 2  # of the growth at most one in so many bytes may be of tensors
_RISE = 20  # a rise is more than one in so many bytes of the growth
_STOPPED = 10  # where less than one in so many bytes of the growth is left, it has stopped
_WRITTEN = ("parameter", "buffer", "gradient", "optimizer state")  # all pages of these have been written to

_Measured = Sequence[tuple["Step", int]]


@dataclass(frozen=True, slots=True, repr=False)
class ProcessGrowth(Brief):
    """The process's memory rose from part to part of the steps, and tensors explain less than half of it."""

    first_step: int
    last_step: int
    begin: int  # resident bytes when the first step ended
    end: int  # ... and the last one
    tensors: int  # what tensors may have to do with it, at most
    stopped: int | None  # the step behind which it no longer grew; None: it grew until the end

    @property
    def bytes(self) -> int:
        """That no tensor explains."""
        return self.end - self.begin - self.tensors

    @property
    def bytes_per_step(self) -> float:
        """Over the steps in which it grew."""
        last = self.last_step if self.stopped is None else self.stopped
        return self.bytes / max(1, last - self.first_step)


def resident_at(report: "Report", time_ns: int) -> int | None:
    """The process's resident bytes then: a change of them is recorded within 0.1 s. None: there was no sample yet."""
    at = bisect.bisect_right(report.resident, time_ns, key=lambda point: point.time_ns)
    return report.resident[at - 1].bytes if at else None


def measured_steps(report: "Report") -> _Measured:
    """The steps behind the warm-up, with the process's resident bytes at their ends."""
    steps = list({step.index: step for step in report.steps}.values())
    settled = steps[max(2, len(steps) // _WARM_UP) :]
    known = [(step, resident_at(report, step.end_ns)) for step in settled]
    return [(step, resident) for step, resident in known if resident is not None]


def growth(report: "Report") -> ProcessGrowth | None:
    """None: the process does not grow, or tensors explain it, or the steps are too few to tell."""
    measured = measured_steps(report)
    if len({step.index for step in report.steps}) < _STEPS or len(measured) < _PARTS:
        return None
    # The lowest of a part: what a moment needed and gave back is no growth.
    lows = [min(resident for _, resident in part) for part in _parts(measured)]
    begin, end = lows[0], min(resident for _, resident in measured[-1 - len(measured) // _WARM_UP :])
    rise = end - begin
    if sum(after - before > max(0, rise // _RISE) for before, after in itertools.pairwise(lows)) < _RISES:
        return None
    tensors = _of_tensors(report, {step.index for step, _ in measured})
    unexplained = rise - tensors
    if unexplained < max(_LEAST, rise // _SHARE) or _being_filled(report) >= unexplained:
        return None
    first = next(step.index for step, resident in reversed(measured) if resident <= begin)
    last, stopped = measured[-1][0].index, _stopped(measured, end - rise // _STOPPED)
    return ProcessGrowth(first, last, begin, end, tensors, stopped)


def _parts(rows: _Measured) -> list[_Measured]:
    return [rows[len(rows) * i // _PARTS : len(rows) * (i + 1) // _PARTS] for i in range(_PARTS)]


def _of_tensors(report: "Report", indexes: set[int]) -> int:
    """By how much live bytes rose at step ends; or what a loop's peaks differ by, for glibc may keep what was freed."""
    rise = 0
    for device in HOST:
        steps = [step for step in report.steps if step.device == device and step.index in indexes]
        quarter = len(steps) // _PARTS
        if quarter == 0:
            continue
        early, late = (statistics.median_low(s.end for s in part) for part in (steps[:quarter], steps[-quarter:]))
        loops: dict[str, list[int]] = {}
        for step in steps:
            loops.setdefault(step.loop, []).append(step.peak)
        rise += max(0, late - early, *(max(peaks) - min(peaks) for peaks in loops.values()))
    return rise


def _being_filled(report: "Report") -> int:
    """The largest tensor that stays and may have pages that no one has written to yet: a buffer for replay."""
    kept = {(one.device, one.stack) for one in report.survivors}
    return max(
        (
            one.bytes // max(1, one.count)
            for device in report.devices
            if device.name in HOST
            for one in device.peak.contributors
            if one.category not in _WRITTEN and (device.name, one.stack) in kept
        ),
        default=0,
    )


def _stopped(measured: _Measured, level: int) -> int | None:
    """The first step from which on the process has all of its growth; None: that is in the last part."""
    reached = len(measured)
    while reached and measured[reached - 1][1] >= level:
        reached -= 1
    part = len(measured) - len(measured) // _PARTS
    return measured[reached][0].index if reached < part else None
