"""How lines of code are written, and with `cuptimem.words` numbers and times."""

from collections.abc import Mapping, Sequence

from cuptimem.output.text.cells import cut
from cuptimem.printable import printable
from cuptimem.report.brief import Placed as Placed
from cuptimem.report.stacks import Frame, shown_file
from cuptimem.report.stacks import function as function
from cuptimem.words import count as count
from cuptimem.words import duration as duration
from cuptimem.words import plural as plural
from cuptimem.words import share as share
from cuptimem.words import signed as signed
from cuptimem.words import size as size

_CODE = 120  # characters of a line of code: a trace may have any


def code(frame: Frame | None) -> str:
    """The source of a line, short, and harmless: a trace may have anything in it."""
    return cut(printable(frame.source[: 2 * _CODE]), _CODE) if frame is not None else ""


def file(frame: Frame) -> str:
    return shown_file(frame.file)


def place(frame: Frame) -> str:
    """file:line"""
    return frame.shown


def where(one: Placed) -> str:
    """The place of a line or leak, or why there is none."""
    return one.where if one.frame is None else place(one.frame)


def shortened(text: str, most: int) -> str:
    """Text of unknown origin and length: printable, of at most so many characters before escapes."""
    return printable(text if len(text) <= most else text[: most - 1] + "…")


_LOOPS = 3  # named in a sentence


def first_loops(loops: Mapping[str, int]) -> tuple[list[str], str]:
    """The loops that have room in a sentence, the ones with most steps, and what is to be said of the others:
    "57 more loops (171 steps)"."""
    most = len(loops) if len(loops) <= _LOOPS + 1 else _LOOPS
    chosen = set(sorted(loops, key=lambda loop: -loops[loop])[:most])
    left = sum(steps for loop, steps in loops.items() if loop not in chosen)
    rest = f"{count(len(loops) - most)} more loops ({plural(left, 'step')})" if len(loops) > most else ""
    return [loop for loop in loops if loop in chosen], rest


def median(values: Sequence[int]) -> float:
    """As statistics.median, whose module would take as long to load as all views (fractions, decimals, random)."""
    ordered, half = sorted(values), len(values) // 2
    return (ordered[half] + ordered[~half]) / 2


def more(number: int) -> str:
    """Behind the one of several that is named: " +3"; nothing where there are no others."""
    return f" +{count(number)}" if number > 0 else ""
