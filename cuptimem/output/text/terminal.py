"""The terminal: colours and tables where a person reads, plain text where a pipe does."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from cuptimem import environ
from cuptimem.output.text import text
from cuptimem.output.text.blocks import Block, Text
from cuptimem.printable import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text as Styled

_STYLES = {"": "", "title": "bold", "strong": "bold cyan", "dim": "dim", "warning": "yellow"}
_PATIENCE_S = 1.0  # shorter work shows no progress


_SIZES = ("COLUMNS", "LINES")


def _columns() -> int | None:
    columns = environ.get("COLUMNS")
    return int(columns) if _is_number(columns) else None


def _is_number(text: str) -> bool:
    """Not "²", which is a digit, nor more digits than int() takes, nor 0."""
    return text.isdecimal() and len(text) < 10 and int(text) > 0


def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    # rich takes these two for numbers where they are digits alone.
    sane = {name: value for name, value in environ.obeyed().items() if name not in _SIZES or _is_number(value)}
    return Console(highlight=False, file=stream, _environ=sane)


def width_of_output() -> int | None:
    """As COLUMNS says, else as wide as the terminal that standard output is; None where it is none."""
    try:
        return _columns() or os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (AttributeError, OSError, ValueError):  # it was replaced, is a pipe, or is closed
        return None


def say(line: str, stream: TextIO | None = None) -> None:
    """Prints one line on standard output, or on another stream, whatever is in it."""
    print(printable(line), file=stream)


def show(blocks: Sequence[Block], stream: TextIO | None = None, otherwise: int | None = None) -> None:
    """Prints the blocks on standard output, or on another stream. otherwise: the width where nothing tells one."""
    stream = stream or sys.stdout
    if not stream.isatty():
        print(text.render(blocks, _columns() or otherwise), file=stream)
        return
    console = _console(stream)
    for line in styled(blocks, console.width):
        console.print(line, soft_wrap=True)


def styled(blocks: Sequence[Block], width: int) -> Iterator["Styled"]:
    """The blocks' lines as a terminal of that width shows them."""
    from rich.text import Text as Styled

    for block in blocks:
        if isinstance(block, Text):
            for shown in text.lines(block, width):
                yield Styled(shown.rstrip(), style=_STYLES[block.style])
            continue
        table = text.shown(block, width)
        for number, cells in enumerate(text.layout(table, width)):
            line = Styled(text.INDENT)
            for column, cell in zip(table.columns, cells, strict=True):
                line.append(cell, style=_STYLES["dim" if number == 0 else column.style]).append(text.GAP)
            line.rstrip()
            yield line
            for below in text.under(table, cells, number, width):
                yield Styled(below, style=_STYLES["dim"])


def joined(lines: Iterable["Styled"]) -> "Styled":
    """All of them as one text."""
    from rich.text import Text as Styled

    return Styled("\n").join(lines)


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], bool]]:
    """Gives a function that is told the share done (0 to 1). It shows a bar on standard error, on a terminal and once
    the work takes longer than a second."""
    if not sys.stderr.isatty():
        yield lambda share: True
        return
    began = time.monotonic()
    shown: list[object] = []

    from contextlib import ExitStack

    with ExitStack() as stack:
        update: list[Callable[[float], None]] = []

        def tell(share: float) -> bool:
            if not shown and time.monotonic() - began > _PATIENCE_S:
                from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

                bar = stack.enter_context(
                    Progress(
                        TextColumn("{task.description}", markup=False),
                        BarColumn(),
                        TaskProgressColumn(),
                        TimeRemainingColumn(),
                        console=_console(sys.stderr),
                        transient=True,
                    )
                )
                task = bar.add_task(printable(what), total=1.0)
                shown.append(bar)
                update.append(lambda done: bar.update(task, completed=done))
            if update:
                update[0](share)
            return True

        yield tell
