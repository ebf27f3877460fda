"""report.to_arrow(): its batches against the rows of `json`, and read by pyarrow, pandas, polars and DuckDB."""

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem.errors import Error
from cuptimem.output import exports
from cuptimem.output.exports import Options
from cuptimem.output.exports.rows import COLUMNS
from cuptimem.report.model import Report
from tests.conftest import ROOT
from tests.tools.exports import arrow_stream
from tests.tools.exports.conftest import totals

CONSUMERS = ROOT / "build/arrow-consumers"  # `make extended` has them beside .venv: they are large
FULL = 1 << 16  # rows (csrc/exports/row_arrow.h)
SAME = [column for column in COLUMNS if column not in ("stack", "origin")]


def rows_of(source: Any) -> list[dict[str, Any]]:
    return [
        dict(zip(batch, row, strict=True))
        for batch in arrow_stream.batches(source)
        for row in zip(*batch.values(), strict=True)
    ]


def test_rows_are_those_of_json(trace: str, report: Report, tmp_path: Path) -> None:
    exports.export(trace, "json", str(tmp_path / "out.jsonl"), Options())
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    wanted = [line for line in lines if line["kind"] == "allocation"]
    found = rows_of(report.to_arrow())
    assert len(found) == len(wanted)
    texts = (cell for line in wanted for cell in line.values() if isinstance(cell, str))
    plain = all(text.isprintable() and len(text) < 1000 for text in texts)  # else json has the exact characters
    for row, line in zip(found, wanted, strict=True):
        assert tuple(row) == COLUMNS
        for column in SAME:
            if plain or not isinstance(row[column], str):
                assert row[column] == line[column], column
    sums = {device: [0, 0] for device in totals(report)}
    for row in found:
        sums[row["device"]][0] += row["bytes"] * (row["when"] != "before start")
        sums[row["device"]][1] += row["bytes"] * (row["freed_ns"] is None)
    assert sums == {name: [allocated, end] for name, (_, end, allocated) in totals(report).items()}


def test_batches_are_bounded(tmp_path: Path) -> None:
    """Each has 65,536 rows and what one batch of the reader ends beyond, and its own texts alone."""
    write_synthetic(str(tmp_path / "a.cmem"), 500_000)
    report = cuptimem.open(str(tmp_path / "a.cmem"))
    sizes, total = [], 0
    for batch in arrow_stream.batches(report.to_arrow()):
        sizes.append(len(batch["bytes"]))
        total += sum(size for size, when in zip(batch["bytes"], batch["when"], strict=True) if when != "before start")
    assert len(sizes) > 2 and all(FULL <= size < FULL + 8192 for size in sizes[:-1])
    assert total == sum(device.allocated for device in report.devices)


def test_one_that_nobody_reads_is_released(traces: Callable[[str], str]) -> None:
    rows = cuptimem.open(traces("plain")).to_arrow()
    for _ in range(100):
        rows.__arrow_c_stream__()
    capsule, stream = arrow_stream.stream_of(rows)
    array = arrow_stream.Array()
    assert stream.get_next(ctypes.byref(stream), ctypes.byref(array)) == 0
    del capsule  # the batch outlives its stream
    assert array.length == 24
    array.release(ctypes.byref(array))


def test_a_failure_is_told(traces: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    from cuptimem.output.exports import arrow

    def fails(*_: Any) -> Any:
        raise Error("no names today")

    monkeypatch.setattr(arrow._Texts, "__call__", fails)
    capsule, stream = arrow_stream.stream_of(cuptimem.open(traces("plain")).to_arrow())
    array = arrow_stream.Array()
    assert stream.get_next(ctypes.byref(stream), ctypes.byref(array)) != 0
    assert stream.get_last_error(ctypes.byref(stream)) == b"no names today"
    assert not array.release and capsule is not None


def test_without_pyarrow(traces: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for kind in ("arrow", "parquet"):
        with pytest.raises(Error, match=r"pip install cuptimem\[arrow\]"):
            exports.export(traces("plain"), kind, str(tmp_path / "out"), Options())
        assert not list(tmp_path.iterdir())


@pytest.mark.extended
def test_read_by_pyarrow_pandas_polars_and_duckdb(report: Report, trace: str, tmp_path: Path) -> None:
    check_all(report, trace, tmp_path)


@pytest.mark.extended
def test_several_batches_are_read_by_all(tmp_path: Path) -> None:
    path = str(tmp_path / "a.cmem")
    write_synthetic(path, 500_000)
    check_all(cuptimem.open(path), path, tmp_path)


def check_all(report: Report, trace: str, folder: Path) -> None:
    """Every reader of read_by_all.py finds the rows, their sums and their texts."""
    if not CONSUMERS.is_dir() and importlib.util.find_spec("pyarrow") is None:
        pytest.skip("needs pyarrow, pandas, polars and DuckDB: make build/arrow-consumers/.made")
    program = Path(__file__).with_name("read_by_all.py")
    path = os.pathsep.join((str(ROOT), str(CONSUMERS)))
    ran = subprocess.run(
        [sys.executable, str(program), trace, str(folder)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)["found"]
    rows = rows_of(report.to_arrow())
    used = {row["device"] for row in rows}
    of = {name: [allocated, end] for name, (_, end, allocated) in totals(report).items() if name in used}
    texts = [
        sorted({row[column] for row in rows if row[column] is not None})
        for column in ("where", "stack", "category", "when")
    ]
    assert len(found) == 9
    for name, what in found.items():
        assert what == [len(rows), of, texts], name
