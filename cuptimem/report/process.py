"""Growth of the whole process that no tensor explains: memory in use beside tensors, over the steps."""

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cuptimem.report.brief import Brief

if TYPE_CHECKING:
    from cuptimem.report.model import Report, ResidentPoint, Step

HOST = ("cpu", "pinned")  # devices whose bytes are memory of the process
_STEPS = 20  # with fewer of them most is warm-up
_WARM_UP = 10  # the first of so many equal parts loads libraries and builds state
_PARTS = 4  # of the steps behind it
_LEAST = 8 << 20  # caches of Python and libraries wander by some MiB
_RISE = 10  # a rise from part to part is more than one in so many bytes of the growth; of a steady one it is a third

_WRITTEN = ("parameter", "buffer", "gradient", "optimizer state")  # all pages of these have been written to

_T = TypeVar("_T")
_Measured = Sequence[tuple["Step", int]]


@dataclass(frozen=True, slots=True, repr=False)
class ProcessGrowth(Brief):
    """Memory in use beside tensors rises from each quarter of the steps to the next, and resident memory, too."""

    first_step: int
    last_step: int
    begin: int  # resident bytes of the process at first
    end: int  # ... and at last
    bytes: int  # that no tensor explains: memory in use rose by so much, resident memory by no less

    @property
    def tensors(self) -> int:
        """What tensors may have to do with it, at most, and heap that is kept for later."""
        return self.end - self.begin - self.bytes

    @property
    def bytes_per_step(self) -> float:
        return self.bytes / max(1, self.last_step - self.first_step)


def resident_at(report: "Report", time_ns: int) -> int | None:
    """The process's resident bytes then: a change of them is recorded within 0.1 s. None: there was no sample yet."""
    at = bisect.bisect_right(report.resident, time_ns, key=lambda point: point.time_ns)
    return report.resident[at - 1].bytes if at else None


def measured_steps(report: "Report") -> _Measured:
    """The steps behind the warm-up, with the process's resident bytes at their ends."""
    steps = list({step.index: step for step in report.steps.ended}.values())
    settled = steps[max(2, len(steps) // _WARM_UP) :]
    known = [(step, resident_at(report, step.end_ns)) for step in settled]
    return [(step, resident) for step, resident in known if resident is not None]


def growth(report: "Report") -> ProcessGrowth | None:
    """None: the process does not grow, or tensors explain it, or steps or samples are too few to tell."""
    measured = measured_steps(report)
    parts = _quarters(report, measured)
    if not parts:
        return None
    rest = [_within(report.rest, part[0][0].begin_ns, part[-1][0].end_ns) for part in parts]
    if not all(rest):
        return None
    # The lowest of a part: what a moment needed and gave back is no growth, nor is what a switch of phases loads.
    lows = [min(part) for part in rest]
    rise = min(_last([size for part in rest for size in part])) - lows[0]
    if any(after - before <= max(0, rise // _RISE) for before, after in itertools.pairwise(lows)):
        return None
    begin, end = min(resident for _, resident in parts[0]), min(resident for _, resident in _last(measured))
    # Address space of threads and mappings need not be touched, and what is touched may be a tensor's.
    size = min(rise, end - begin - _of_tensors(report, parts[0][0][0].index, measured[-1][0].index))
    if size < _LEAST or _being_filled(report) >= size:
        return None
    return ProcessGrowth(measured[0][0].index, measured[-1][0].index, begin, end, size)


def _quarters(report: "Report", measured: _Measured) -> list[_Measured]:
    """None where steps or samples are too few to tell."""
    if len({step.index for step in report.steps.ended}) < _STEPS or len(measured) < _PARTS:
        return []
    return [measured[len(measured) * i // _PARTS : len(measured) * (i + 1) // _PARTS] for i in range(_PARTS)]


def unmeasured(report: "Report") -> int:
    """By how many resident bytes the process rose beside tensors, from quarter to quarter, where memory in use was not
    measured in all of them. 0: it was, or nothing rose."""
    measured = measured_steps(report)
    parts = _quarters(report, measured)
    if all(_within(report.rest, part[0][0].begin_ns, part[-1][0].end_ns) for part in parts):  # or there are none
        return 0
    lows = [min(resident for _, resident in part) for part in parts]
    size = lows[-1] - lows[0] - _of_tensors(report, parts[0][0][0].index, measured[-1][0].index)
    return size if lows == sorted(lows) and size >= _LEAST and _being_filled(report) < size else 0


def _of_tensors(report: "Report", first: int, last: int) -> int:
    """By how much live bytes rose from the end of one step to that of another."""
    ends = {(step.device, step.index): step.end for step in report.steps.ended if step.device in HOST}
    return sum(max(0, ends.get((device, last), 0) - ends.get((device, first), 0)) for device in HOST)


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


def _within(points: Sequence["ResidentPoint"], begin_ns: int, end_ns: int) -> list[int]:
    return [point.bytes for point in points if begin_ns <= point.time_ns <= end_ns]


def _last(rows: Sequence[_T]) -> Sequence[_T]:
    return rows[-1 - len(rows) // _WARM_UP :]
