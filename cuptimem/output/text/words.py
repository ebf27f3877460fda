"""How numbers, times and lines of code are written."""

from collections.abc import Mapping
from typing import Protocol

from cuptimem import sizes
from cuptimem.output.text.cells import cut
from cuptimem.printable import printable
from cuptimem.report.stacks import Frame, shown_file

_CODE = 120  # characters of a line of code: a trace may have any

size = sizes.text


def signed(value: int) -> str:
    """A change of bytes: +1.5 KiB, -3 B, 0."""
    return "0" if value == 0 else f"{'+' if value > 0 else ''}{size(value)}"


def count(value: int) -> str:
    """12,345"""
    return f"{value:,}"


def plural(number: int, what: str) -> str:
    """1 block, 12,345 blocks"""
    return f"{count(number)} {what}" if number == 1 else f"{count(number)} {what}s"


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""


def duration(nanoseconds: int) -> str:
    """0.4 ms, 950 ms, 41.2 s, 12 min 3 s"""
    seconds = nanoseconds / 1e9
    if 0 < seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def code(frame: Frame | None) -> str:
    """The source of a line, short, and harmless: a trace may have anything in it."""
    return cut(printable(frame.source[: 2 * _CODE]), _CODE) if frame is not None else ""


def file(frame: Frame) -> str:
    return shown_file(frame.file)


def place(frame: Frame) -> str:
    """file:line"""
    return f"{file(frame)}:{frame.line}"


class Placed(Protocol):
    @property
    def frame(self) -> Frame | None: ...
    @property
    def where(self) -> str: ...


def where(one: Placed) -> str:
    """The place of a line or leak, or why there is none."""
    return one.where if one.frame is None else place(one.frame)


def shortened(text: str, most: int) -> str:
    """Text of unknown origin and length: printable, of at most so many characters before escapes."""
    return printable(text if len(text) <= most else text[: most - 1] + "…")


def function(frame: Frame | None) -> str:
    return frame.function.replace(".<locals>", "") if frame is not None else ""


_LOOPS = 3  # named in a sentence


def first_loops(loops: Mapping[str, int]) -> tuple[list[str], str]:
    """The loops that have room in a sentence, the ones with most steps, and what is to be said of the others:
    "57 more loops (171 steps)"."""
    most = len(loops) if len(loops) <= _LOOPS + 1 else _LOOPS
    chosen = set(sorted(loops, key=lambda loop: -loops[loop])[:most])
    left = sum(steps for loop, steps in loops.items() if loop not in chosen)
    rest = f"{count(len(loops) - most)} more loops ({plural(left, 'step')})" if len(loops) > most else ""
    return [loop for loop in loops if loop in chosen], rest


def more(number: int) -> str:
    """Behind the one of several that is named: " +3"; nothing where there are no others."""
    return f" +{count(number)}" if number > 0 else ""
