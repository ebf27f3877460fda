"""Records for others to read: a JSON file, properties of JUnit's XML, extra_info of pytest-benchmark, a table."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cuptimem.errors import Error
from cuptimem.output.text.blocks import Column, Table
from cuptimem.output.text.cells import cut
from cuptimem.output.text.text import INDENT, render
from cuptimem.output.text.words import count, plural, size
from cuptimem.printable import printable
from cuptimem.pytest_plugin.baselines import Record, encoded, json_text, last_of_each

SCHEMA = 1
MOST = 10  # rows of the table

_FIGURES = ("peak", "allocated", "allocations", "leaked", "reserved")


def document(records: Iterable[Record], environment: Mapping[str, Any]) -> dict[str, Any]:
    """Every record, by test id; those of one test in their order."""
    ordered = sorted(records, key=lambda record: record["nodeid"])
    return {"schema": SCHEMA, "environment": dict(environment), "records": [dict(record) for record in ordered]}


def write_json(path: Path, records: Iterable[Record], environment: Mapping[str, Any]) -> None:
    """Raises Error, one line, where the file cannot be written."""
    text = json_text(document(records, environment), indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(f"{text}\n"))  # in place: it may be a pipe
    except OSError as error:
        raise Error(f"{path}: {error.strerror}; the figures of the tests were not written") from None


def properties(record: Record) -> list[tuple[str, int]]:
    """For `user_properties` of a test's report, which JUnit's XML has: cuptimem_peak_cpu, cuptimem_leaked_cuda_0, ...

    What was not measured has no property.
    """
    return [
        (f"cuptimem_{figure}_{re.sub('[^A-Za-z0-9]', '_', device)}", figures[figure])
        for device, figures in record["devices"].items()
        for figure in _FIGURES
        if figures.get(figure) is not None
    ]


def benchmark_info(record: Record) -> dict[str, int]:
    """For `extra_info` of pytest-benchmark: the highest peak of the devices; where they are several each one's, too."""
    peaks = {device: int(figures["peak"]) for device, figures in record["devices"].items()}
    info = {"peak_tensor_bytes": max(peaks.values(), default=0)}
    if len(peaks) > 1:
        info |= {f"peak_tensor_bytes_{re.sub('[^A-Za-z0-9]', '_', device)}": peak for device, peak in peaks.items()}
    return info


def table(records: Iterable[Record], width: int, most: int = MOST) -> list[str]:
    """Tests with the highest peaks, each with its largest contributor below it; no line is longer than width."""
    ended = last_of_each(records)
    rows = [(record["nodeid"], device, figures) for record in ended for device, figures in record["devices"].items()]
    rows = sorted((row for row in rows if row[2]["allocations"] or row[2]["peak"]), key=_order)
    if not rows:
        tests = plural(len(ended), "test")
        return [cut(f"no tensor was allocated in {tests}" if ended else "no test was measured", width)]
    chosen = rows[:most]
    lines = _table(chosen, width)
    if len(rows) > most:
        lines.append(f"{INDENT}and {count(len(rows) - most)} more, up to {size(rows[most][2]['peak'])}")
    return [cut(printable(line), width) for line in lines]


def _order(row: tuple[str, str, Mapping[str, Any]]) -> tuple[int, str, str]:
    return -row[2]["peak"], row[0], row[1]


def _table(rows: Sequence[tuple[str, str, Mapping[str, Any]]], width: int) -> list[str]:
    leaks = any(figures.get("leaked") is not None for _, _, figures in rows)
    columns = [
        Column("peak", right=True),
        Column("device"),
        Column("allocated", right=True, optional=1),
        Column("allocations", right=True, optional=2),
        *([Column("leaked", right=True)] if leaks else []),
        Column("test", flexible=True, keep_end=True),
    ]
    cells = []
    for nodeid, device, figures in rows:
        leaked = figures.get("leaked")
        numbers = [size(figures["peak"]), device, size(figures["allocated"]), count(figures["allocations"])]
        numbers += ["" if leaked is None else size(leaked)] if leaks else []
        cells.append((*numbers, nodeid))
    heading, *lines = render([Table(tuple(columns), tuple(cells))], width).split("\n")
    shown = [heading]
    for line, (_, _, figures) in zip(lines, rows, strict=True):
        shown += [line, *_largest(figures)]
    return shown


def _largest(figures: Mapping[str, Any]) -> list[str]:
    """The first contributor, on a line of its own."""
    for number, _, place, *_ in figures["contributors"][:1]:
        return [f"{INDENT * 3}{size(number)} of it at {place}"]
    return []
