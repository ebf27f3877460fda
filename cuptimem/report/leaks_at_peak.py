"""Leaks at a peak, or at a refused request: what the program keeps is no change's to save."""

from collections import Counter
from collections.abc import Iterable, Sequence

from cuptimem.report.advice import LeakAtPeak
from cuptimem.report.contents import Contributor
from cuptimem.report.leaks import Leak
from cuptimem.report.stacks import Stack

_MUCH = 0.1  # of what is alive

Made = tuple[Stack, str]  # what leaks are told apart by: a stack, and the phase


def at_peak(leaks: Sequence[Leak], device: str, whole: int, alive: Iterable[tuple[Made, int]]) -> list[LeakAtPeak]:
    """Those that have much of what is alive on a device, `whole` bytes."""
    made: Counter[tuple[object, bool]] = Counter()
    for of, size in alive:
        made[_key(*of)] += size
    found = []
    for leak in leaks:
        # What the last step makes is not kept yet.
        has = sum(
            min(one.bytes, sum(made[_lines(part.stack), one.backward] for part in one.parts))
            for one in _of(leak, device)
        )
        if has >= _MUCH * whole:
            found.append(LeakAtPeak(has, leak))
    return found


def not_of(leaks: Iterable[Leak], device: str, alive: Iterable[Contributor]) -> list[Contributor]:
    """What none of them makes."""
    known = {(_lines(part.stack), one.backward) for leak in leaks for one in _of(leak, device) for part in one.parts}
    return [one for one in alive if _key(one.stack, one.phase) not in known]


def _of(leak: Leak, device: str) -> list[Leak]:
    return [one for one in (leak, *leak.keeps) if one.kind == "bytes" and one.device == device]


def _key(stack: Stack, phase: str) -> tuple[object, bool]:
    return _lines(stack), phase == "backward"


def _lines(stack: Stack) -> object:
    return tuple((frame.file, frame.function, frame.line) for frame in stack)
