"""What a report knows of who held the memory of one line: at its end, and of what grew; or why it knows nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

from cuptimem.errors import Error
from cuptimem.report.held import HeldLine
from cuptimem.report.leaks import Leak
from cuptimem.report.model import Report
from cuptimem.report.stacks import Frame, Stack, user_frame

_NAMED = 5  # in an error


@dataclass(frozen=True, slots=True)
class LineHolders:
    """Of one line of the user's."""

    frame: Frame
    held: tuple[HeldLine, ...]  # at the end, one for each device
    leaks: tuple[Leak, ...]  # with holders: leaks, suspects and what stands under them


def known(report: Report) -> tuple[LineHolders, ...]:
    """Every line of which holders are known, the most bytes at the end first."""
    frames: dict[tuple[str, int], Frame] = {}
    # A leak stands once, at the line that views show first; asked for any line of its parts it is found there, too.
    for frame in (*(one.frame for one in report.held), *(_first(leak) for leak in _leaks(report))):
        if frame is not None:
            frames.setdefault((frame.file, frame.line), frame)
    return tuple(_of(report, frame) for frame in frames.values())


def of_line(report: Report, asked: str) -> LineHolders:
    """Of the line that this names: "model.py:16", or a part of its path and number that no other line has.

    Raises Error where it names none or several, or where nothing is known of it.
    """
    found = known(report)
    lines = {(one.file, one.line): one for leak in _leaks(report) for one in _frames(leak)}
    lines |= {(one.frame.file, one.frame.line): one.frame for one in found}
    matching = _matching(list(lines.values()), asked)
    if len(matching) == 1:
        return _of(report, matching[0])
    if matching:
        raise Error(f"{asked} may be {_listed(matching)}: give more of the path")
    seen = _matching(_seen(report), asked)
    if len(seen) == 1:
        raise Error(f"who held {seen[0].place} is not known: {_why(report, seen[0])}")
    if seen:
        raise Error(f"{asked} may be {_listed(seen)}; who held any of them is not known: {why_none(report)}")
    others = f"; known are {_listed([one.frame for one in found])}" if found else f"; {why_none(report)}"
    raise Error(f"no line of what was alive or grew is {asked}{others}")


def why_none(report: Report) -> str:
    """Why no search at the end has found anything, as far as the recording says it."""
    if "snapshot" in report.environment:
        return "a memory snapshot of PyTorch's has none of Python's objects"
    if report.environment.get("holders") == "off":
        return "it was recorded without the search for holders"
    if report.state != "complete":
        return "the search runs when the recording ends, and this program was killed or still runs"
    if not any(device.kept for device in report.devices):
        return "nothing was alive at the end that had been allocated since the start"
    if report.held:
        return "the search at the end goes through the largest lines of the user's only"
    return (
        "the search at the end did not run (a profile that ends inside another one has none, nor has a recording of "
        "an older cuptimem), or it took too long"
    )


def _why(report: Report, frame: Frame) -> str:
    for device in report.devices:
        for line in report.contents("end", device.name).lines:
            if line.frame is not None and line.frame.same_line(frame):
                return why_none(report)
    return "nothing of it was alive at the end, and it did not grow"


def _of(report: Report, frame: Frame) -> LineHolders:
    held = tuple(one for one in report.held if one.frame is not None and one.frame.same_line(frame))
    leaks = tuple(leak for leak in _leaks(report) if any(frame.same_line(one) for one in _frames(leak)))
    return LineHolders(frame, held, leaks)


def _leaks(report: Report) -> Iterator[Leak]:
    for leak in (*report.leaks, *report.suspects):
        yield from (one for one in (leak, *leak.keeps) if one.holders)


def _first(leak: Leak) -> Frame | None:
    return user_frame(leak.retained_at) or user_frame(leak.stack)


def _frames(leak: Leak) -> list[Frame]:
    stacks: list[Stack] = [leak.stack, leak.retained_at, *(part.stack for part in leak.parts)]
    return [frame for frame in map(user_frame, stacks) if frame is not None]


def _seen(report: Report) -> list[Frame]:
    """The lines of the peaks and of the end."""
    contents = (report.contents(what, device.name) for device in report.devices for what in ("peak", "end"))
    lines = {(line.frame.file, line.frame.line): line.frame for one in contents for line in one.lines if line.frame}
    return list(lines.values())


def _matching(frames: list[Frame], asked: str) -> list[Frame]:
    asked = asked.removeprefix("…/").removeprefix("./")
    exact = [one for one in frames if f"/{one.file}:{one.line}".endswith(f"/{asked}")]
    return exact or [one for one in frames if asked in f"{one.file}:{one.line}"]


def _listed(frames: list[Frame]) -> str:
    more = f" and {len(frames) - _NAMED} more" if len(frames) > _NAMED else ""
    return ", ".join(one.place for one in frames[:_NAMED]) + more
