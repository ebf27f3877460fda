"""Tables: steps.csv, allocations.csv, and stacks.csv with the frames that the numbers in allocations.csv stand for."""

import contextlib
import csv
import io
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any, cast

from cuptimem.errors import Error
from cuptimem.output.exports import Options, Written, events
from cuptimem.output.exports.events import Events
from cuptimem.output.exports.rows import COLUMNS, NUMBERS, WHENS, Layout, Rows
from cuptimem.output.text import words
from cuptimem.report.model import _STEP_COLUMNS as STEP_COLUMNS

TABLES = ("steps", "allocations", "stacks")
STACK_COLUMNS = ("stack", "depth", "file", "line", "function", "module")


class _Sheet:
    """A table as it is written."""

    def __init__(self, file: IO[bytes], columns: Iterable[str]) -> None:
        self._text = io.TextIOWrapper(cast(Any, file), encoding="utf-8", newline="", write_through=False)
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._columns = tuple(columns)
        self._writer.writerow(self._columns)
        self.rows = 0

    def add(self, row: dict[str, Any]) -> None:
        self._writer.writerow([_cell(row[name]) for name in self._columns])
        self.rows += 1

    def add_written(self, rows: bytes) -> None:
        self._text.write(rows.decode())

    def close(self) -> None:
        self._text.flush()
        self._text.detach()


def _cell(value: Any) -> Any:
    """A spreadsheet would take text that begins like this for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(tuple("=+-@＝＋－＠")) else value


def _stacks(source: Events, numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
    for number in numbers:
        for depth, frame in enumerate(source.stack(number)):
            yield {
                "stack": number,
                "depth": depth,
                "file": events.text(frame.file),
                "line": frame.line if frame.line >= 0 else None,
                "function": events.text(frame.function),
                "module": None if frame.module is None else events.text(frame.module),
            }


def write(trace: str, path: str, options: Options) -> Written:
    if options.table is not None and options.table not in TABLES:
        raise Error(f"no table {options.table!r}: there are {', '.join(TABLES)}")
    files = {options.table: path} if options.table is not None else {t: os.path.join(path, f"{t}.csv") for t in TABLES}
    if options.table is None:
        if os.path.lexists(path) and not os.path.isdir(path):
            raise Error(f"csv writes a folder, and {path} is not one; --table writes one table into a file")
        os.makedirs(path, exist_ok=True)
    for file in files.values():
        events.refuse(file, options)
    columns = {"steps": STEP_COLUMNS, "allocations": COLUMNS, "stacks": STACK_COLUMNS}
    with contextlib.ExitStack() as opened:
        sheets: dict[str | None, _Sheet] = {}
        for table, file in files.items():
            sheet = _Sheet(opened.enter_context(events.target(file, options)), columns[table or ""])
            opened.callback(sheet.close)
            sheets[table] = sheet
        source = Events(trace, options)
        _fill(source, sheets)
    counts = [f"{words.count(sheet.rows)} rows of {table}" for table, sheet in sheets.items()]
    size = sum(os.path.getsize(file) for file in files.values())
    return Written(
        path, size, ", ".join(counts), "pandas.read_csv, DuckDB, a spreadsheet", events.caveats(source.report)
    )


def _fill(source: Events, sheets: dict[str | None, _Sheet]) -> None:
    if "steps" in sheets:
        for step in source.report.steps.to_dicts():
            if source.device in (None, step["device"]):
                sheets["steps"].add(step | {"loop": events.text(step["loop"])})
    if "allocations" not in sheets and "stacks" not in sheets:
        return

    def add_stacks(numbers: list[int]) -> bytes:
        if "stacks" in sheets:
            for frame in _stacks(source, numbers):
                sheets["stacks"].add(frame)
        return b""

    layout = Layout(
        head=lambda device: _cells([device]) + b",",
        about=lambda cells: b"," + _cells(cells.values()) + b",",
        stacks=add_stacks,
        gaps=(b",",) * (len(NUMBERS) - 1),
        none=b"",
        ends=tuple(b"," + _cells([when]) + b"\n" for when in WHENS),
    )
    rows = Rows(source, layout)
    for piece in rows:
        if "allocations" in sheets:
            sheets["allocations"].add_written(piece)
    if "allocations" in sheets:
        sheets["allocations"].rows = rows.count


def _cells(values: Iterable[Any]) -> bytes:
    """Cells in the middle of a row."""
    row = io.StringIO()
    csv.writer(row, lineterminator="").writerow(["", *map(_cell, values), ""])  # alone, an empty cell has quotes
    return row.getvalue()[1:-1].encode()
