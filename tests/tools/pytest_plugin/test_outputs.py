"""What others read of a run: JSON, properties of a test, extra_info of a benchmark, the table."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.pytest_plugin import outputs
from tests.tools.pytest_plugin.records import ENVIRONMENT, figures, line, record

ONE = "tests/test_x.py::test_one"
TWO = "tests/test_x.py::test_two"


def test_the_document(tmp_path: Path) -> None:
    first = record(TWO, "failed", cpu=figures(5, [line(5, "m.py:1 größe")], reserved=None))
    runs = [record(ONE, "rerun", cpu=figures(2)), record(ONE, cuda_0=figures(3, reserved=2 << 20))]
    outputs.write_json(tmp_path / "new" / "figures.json", [first, *runs], ENVIRONMENT)
    text = (tmp_path / "new" / "figures.json").read_text(encoding="utf-8")
    assert text.endswith("}\n") and "größe" in text
    assert json.loads(text) == {"schema": 1, "environment": ENVIRONMENT, "records": [*runs, first]}


def test_the_document_of_no_records(tmp_path: Path) -> None:
    outputs.write_json(tmp_path / "figures.json", [], {})
    assert json.loads((tmp_path / "figures.json").read_text()) == {"schema": 1, "environment": {}, "records": []}


@pytest.mark.parametrize("nodeid", ["t.py::日本語[\n]", "t.py::\udcff", "t.py::" + "x" * 99_999])
def test_the_document_has_any_id(tmp_path: Path, nodeid: str) -> None:
    outputs.write_json(tmp_path / "figures.json", [record(nodeid)], {})
    (one,) = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["records"]
    assert one["nodeid"] == nodeid


def test_a_document_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "figures.json"):
        with pytest.raises(Error, match="directory|exists") as raised:
            outputs.write_json(path, [record(ONE)], ENVIRONMENT)
        assert str(raised.value).startswith(f"{path}: ") and "\n" not in str(raised.value)


def test_a_document_into_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        outputs.write_json(pipe, [record(ONE)], {})
        assert json.loads(os.read(reader, 65536))["records"][0]["nodeid"] == ONE
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_properties() -> None:
    both = record(ONE, cpu=figures(5, leaked=None), cuda_0=figures(7, reserved=2 << 20, leaked=3))
    assert outputs.properties(both) == [
        ("cuptimem_peak_cpu", 5),
        ("cuptimem_allocated_cpu", 10),
        ("cuptimem_allocations_cpu", 4),
        ("cuptimem_peak_cuda_0", 7),
        ("cuptimem_allocated_cuda_0", 14),
        ("cuptimem_allocations_cuda_0", 4),
        ("cuptimem_leaked_cuda_0", 3),
        ("cuptimem_reserved_cuda_0", 2 << 20),
    ]
    assert outputs.properties(record(ONE)) == []


def test_benchmark_info() -> None:
    assert outputs.benchmark_info(record(ONE, cpu=figures(5))) == {"peak_tensor_bytes": 5}
    assert outputs.benchmark_info(record(ONE, cpu=figures(5), cuda_0=figures(7))) == {
        "peak_tensor_bytes": 7,
        "peak_tensor_bytes_cpu": 5,
        "peak_tensor_bytes_cuda_0": 7,
    }
    assert outputs.benchmark_info(record(ONE)) == {"peak_tensor_bytes": 0}


def test_the_table() -> None:
    records = [
        record(ONE, cpu=figures(1 << 20, [line(1 << 19, "model.py:12 Net.forward"), line(9, "m.py:1 f")])),
        record(TWO, "failed", cpu=figures(0, allocations=1), cuda_0=figures(5 << 30, leaked=None, allocations=12345)),
        record("tests/test_x.py::nothing"),
        record("tests/test_x.py::zero", cpu=figures(0, allocations=0)),
    ]
    assert outputs.table(records, 100) == [
        "     peak  device  allocated  allocations  leaked  test",
        "  5.0 GiB  cuda:0   10.0 GiB       12,345          tests/test_x.py::test_two",
        "  1.0 MiB  cpu       2.0 MiB            4     0 B  tests/test_x.py::test_one",
        "      512.0 KiB of it at model.py:12 Net.forward",
        "      0 B  cpu           0 B            1     0 B  tests/test_x.py::test_two",
    ]


def test_leaks_have_a_column_where_they_were_measured() -> None:
    (heading, row) = outputs.table([record(ONE, cpu=figures(5, leaked=None))], 80)
    assert "leaked" not in heading
    assert row.split() == ["5", "B", "cpu", "10", "B", "4", ONE]


def test_the_largest_of_many() -> None:
    records = [record(f"t{i:03}", cpu=figures(i, [line(i, "m.py:1 f")])) for i in range(100)]
    said = outputs.table(records, 80, most=3)
    assert [text.split()[-1] for text in said[1:-1:2]] == ["t099", "t098", "t097"]
    assert said[-1] == "  and 97 more, up to 96 B"
    assert outputs.table(records[::-1], 80, most=3) == said
    assert len(outputs.table(records, 80)) == 1 + 2 * outputs.MOST + 1


def test_a_rerun_is_in_the_table_once() -> None:
    said = outputs.table([record(ONE, "rerun", cpu=figures(9)), record(ONE, cpu=figures(5))], 80)
    assert len(said) == 2 and said[1].startswith("   5 B")


def test_nothing_for_a_table() -> None:
    assert outputs.table([], 80) == ["no test was measured"]
    assert outputs.table([record(ONE), record(TWO, cpu=figures(0, allocations=0))], 80) == [
        "no tensor was allocated in 2 tests"
    ]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 200])
def test_the_table_fits(width: int) -> None:
    devices: dict[str, Any] = {"cpu": figures(5, [line(5, "m.py:1 f\n" + "z" * 300)]), "cuda_0": figures(7 << 40)}
    nodeid = "tests/größe.py::test[a\nb\x1b[2J" + "x" * 500 + "end]"
    said = outputs.table([record(nodeid, **devices), record("日本語", **devices)], width)
    assert max(map(len, said)) <= width
    said += outputs.table([record("t.py::test[a\nb\x1b[2J]", **devices)], width)
    assert all(text.isprintable() for text in said)
    if width >= 80:
        assert "xend]" in said[1]


def test_importing_it_all_loads_nothing_large() -> None:
    program = (
        "import sys\nfrom cuptimem.pytest_plugin import baselines, comparison, outputs\n"
        "print({'torch', 'numpy', 'rich', 'cuptimem.report.model', 'cuptimem.record.recorder'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
