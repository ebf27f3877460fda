"""Leaks at a peak: what the program keeps is no change's to save."""

from collections import Counter

from cuptimem.report.advice import LeakAtPeak
from cuptimem.report.contents import Contents
from cuptimem.report.model import Report
from cuptimem.report.stacks import Stack

_MUCH = 0.1  # of a peak


def at_peak(report: Report, peak: Contents) -> tuple[LeakAtPeak, ...]:
    """Those that have much of a device's peak."""
    made: Counter[tuple[object, bool]] = Counter()
    for one in peak.contributors:
        made[_lines(one.stack), one.phase == "backward"] += one.bytes
    found = []
    for leak in report.leaks:
        # What its last step makes at the peak is not kept yet.
        has = sum(
            min(one.bytes, sum(made[_lines(part.stack), one.backward] for part in one.parts))
            for one in (leak, *leak.keeps)
            if one.kind == "bytes" and one.device == peak.device
        )
        if has >= _MUCH * peak.bytes:
            found.append(LeakAtPeak(has, leak))
    return tuple(found)


def _lines(stack: Stack) -> object:
    """What leaks are told apart by."""
    return tuple((frame.file, frame.function, frame.line) for frame in stack)
