"""The terminal: colours and tables where a person reads, plain text where a pipe does."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cuptimem.reporters import text
from cuptimem.reporters.blocks import Block, Text

_STYLES = {"": "", "title": "bold", "strong": "bold cyan", "dim": "dim", "warning": "yellow"}
_PATIENCE_S = 1.0  # shorter work shows no progress


def show(blocks: Sequence[Block]) -> None:
    """Prints the blocks on standard output."""
    if not sys.stdout.isatty():
        columns = os.environ.get("COLUMNS", "")
        print(text.render(blocks, int(columns) if columns.isdigit() and int(columns) > 0 else None))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text as RichText

    console = Console(highlight=False)
    for block in blocks:
        if isinstance(block, Text):
            console.print(RichText(block.text, style=_STYLES[block.style]), soft_wrap=True)
            continue
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("")  # indents by as much as plain text does
        for column in block.columns:
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                style=_STYLES[column.style],
                min_width=12
                if column.flexible
                else min(20, max((len(column.name), *_lengths(block.rows, column.name, block)))),
            )
        for row in block.rows:
            table.add_row("", *(RichText(cell) for cell in row))
        console.print(table)


def _lengths(rows: Sequence[tuple[str, ...]], name: str, block: Block) -> Iterator[int]:
    yield 0
    if not isinstance(block, Text):
        position = next(i for i, column in enumerate(block.columns) if column.name == name)
        for row in rows:
            yield len(row[position])


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
                from rich.console import Console
                from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

                bar = stack.enter_context(
                    Progress(
                        TextColumn("{task.description}"),
                        BarColumn(),
                        TaskProgressColumn(),
                        TimeRemainingColumn(),
                        console=Console(stderr=True),
                        transient=True,
                    )
                )
                task = bar.add_task(what, total=1.0)
                shown.append(bar)
                update.append(lambda done: bar.update(task, completed=done))
            if update:
                update[0](share)
            return True

        yield tell
