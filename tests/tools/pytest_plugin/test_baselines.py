"""Baselines: which file, what is in it, what a partial run leaves of it, and files that are damaged."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cuptimem.errors import Error
from cuptimem.pytest_plugin import baselines
from tests.tools.pytest_plugin.records import ENVIRONMENT, H100, KEY, environment, figures, line, record, with_gpus

ONE = "tests/test_x.py::test_one"
TWO = "tests/test_x.py::test_two"


def saved_tests(root: Path, key: str = KEY, name: str = "baseline") -> Any:
    return json.loads((root / ".cuptimem" / key / f"{name}.json").read_text(encoding="utf-8"))["tests"]


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, {"cpu": KEY}),
        ({"torch": "2.14.0a0+git1234"}, {"cpu": "cpu-x86_64-avx2-torch-2.14"}),
        ({"torch": "2.1.0"}, {"cpu": "cpu-x86_64-avx2-torch-2.1"}),
        ({"torch": "mine/../.."}, {"cpu": "cpu-x86_64-avx2-torch-mine"}),
        ({"devices": {"cpu": "aarch64"}}, {"cpu": "cpu-aarch64-torch-2.13"}),
        ({"devices": {}}, {}),
        (
            {"devices": {"cuda:0": "NVIDIA H100 80GB HBM3", "cuda:1": "NVIDIA H100 80GB HBM3"}},
            {"cuda:0": H100, "cuda:1": H100},
        ),
        ({"devices": {"cuda:0": "../Größe\n"}}, {"cuda:0": "Gr-e-torch-2.13"}),
        ({"devices": {"cuda:0": ""}}, {"cuda:0": "cuda-0-torch-2.13"}),
        (
            {"simulated": "l4, 22.0 GiB", "devices": {"cpu": "x86_64 avx2", "cuda:0": "NVIDIA L4"}},
            {
                "cpu": "simulated-l4-22.0GiB-cpu-x86_64-avx2-torch-2.13",
                "cuda:0": "simulated-l4-22.0GiB-torch-2.13",
            },
        ),
    ],
)
def test_keys(changes: dict[str, Any], keys: dict[str, str]) -> None:
    assert baselines.keys_of(environment(**changes), []) == keys


def test_a_device_that_the_environment_does_not_describe_keeps_its_name() -> None:
    records = [record(ONE, cuda_1=figures(5))]
    assert baselines.keys_of(ENVIRONMENT, records) == {"cpu": KEY, "cuda:1": "cuda-1-torch-2.13"}
    assert baselines.keys_of({}, records) == {"cuda:1": "cuda-1-torch-unknown"}


@pytest.mark.torch
def test_the_instruction_set_is_the_one_that_torch_dispatches_on() -> None:
    program = (
        "import sys\nfrom cuptimem.pytest_plugin import baselines\nprint(baselines.cpu_description())\n"
        "assert 'torch' not in sys.modules\n"
        "import torch\nprint(baselines.cpu_description())\nprint(torch.backends.cpu.get_cpu_capability().lower())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        text=True,
        check=True,
    )
    bare, described, capability = done.stdout.splitlines()
    assert (bare, described) == (os.uname().machine, f"{os.uname().machine} {capability}")
    assert capability == "default"


@pytest.mark.parametrize("name", ["main", "größe 2", "before-1.2", "-k"])
def test_names(name: str) -> None:
    assert baselines.checked_name(name) == name


@pytest.mark.parametrize("name", ["", "  ", "a/b", "..", "../x", "a..b", ".hidden", "a\\b", "a\nb", "a\0", "x" * 201])
def test_wrong_names(name: str) -> None:
    with pytest.raises(ValueError, match="name of a baseline") as raised:
        baselines.checked_name(name)
    assert "\n" not in str(raised.value)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    lines = [line(60, "model.py:12 Net.forward", source="h = self.a(x)"), line(40, "(no Python line)", "other")]
    (saved,) = baselines.save(tmp_path, "main", [record(ONE, cpu=figures(100, lines, leaked=None))], ENVIRONMENT)
    assert (saved.path, saved.written, saved.kept) == (tmp_path / ".cuptimem" / KEY / "main.json", 1, 0)
    row = baselines.load(tmp_path, "main").row(KEY, ONE, "cpu")
    assert row == {
        "peak": 100,
        "allocated": 200,
        "allocations": 4,
        "leaked": None,
        "contributors": [
            [60, 1, "model.py:12 Net.forward", "forward", "h = self.a(x)"],
            [40, 1, "(no Python line)", "other", ""],
        ],
    }


def test_the_file(tmp_path: Path) -> None:
    """To the letter: people read it, and its differences."""
    records = [
        record("t.py::b", cpu=figures(7, [line(5, "m.py:3 f"), line(2, "m.py:4 f")])),
        record("t.py::a", cpu=figures(0, allocations=0)),
        record("t.py::nothing"),
    ]
    baselines.save(tmp_path, "baseline", records, ENVIRONMENT)
    text = (tmp_path / ".cuptimem" / KEY / "baseline.json").read_text()
    assert (
        text
        == """\
{
 "schema": 1,
 "tests": {
  "t.py::a": {
   "cpu": {
    "allocated": 0,
    "allocations": 0,
    "leaked": 0,
    "peak": 0,
    "contributors": []
   }
  },
  "t.py::b": {
   "cpu": {
    "allocated": 14,
    "allocations": 4,
    "leaked": 0,
    "peak": 7,
    "contributors": [
     [5, 1, "m.py:3 f", "forward", ""],
     [2, 1, "m.py:4 f", "forward", ""]
    ]
   }
  },
  "t.py::nothing": {}
 }
}
"""
    )


def test_the_order_of_tests_changes_nothing_in_the_file(tmp_path: Path) -> None:
    records = [record(f"t.py::{i}", cpu=figures(i)) for i in range(20)]
    baselines.save(tmp_path, "a", records, ENVIRONMENT)
    baselines.save(tmp_path, "b", records[::-1], environment(torch="2.13.1"))
    folder = tmp_path / ".cuptimem" / KEY
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()


def test_ten_contributors_are_kept(tmp_path: Path) -> None:
    lines = [line(100 - i, f"m.py:{i} f") for i in range(1, 30)]
    baselines.save(tmp_path, "baseline", [record(ONE, cpu=figures(10_000, lines))], ENVIRONMENT)
    assert [one[0] for one in saved_tests(tmp_path)[ONE]["cpu"]["contributors"]] == list(range(99, 89, -1))


def test_a_part_of_the_suite_keeps_the_other_rows(tmp_path: Path) -> None:
    baselines.save(tmp_path, "baseline", [record(ONE, cpu=figures(1)), record(TWO, cpu=figures(2))], ENVIRONMENT)
    (saved,) = baselines.save(tmp_path, "baseline", [record(TWO, cpu=figures(3))], ENVIRONMENT)
    assert (saved.written, saved.kept) == (1, 1)
    assert {nodeid: row["cpu"]["peak"] for nodeid, row in saved_tests(tmp_path).items()} == {ONE: 1, TWO: 3}


@pytest.mark.parametrize("outcome", ["failed", "skipped", "rerun"])
def test_what_did_not_pass_is_not_written(tmp_path: Path, outcome: str) -> None:
    assert baselines.save(tmp_path, "baseline", [record(ONE, outcome, cpu=figures(9))], ENVIRONMENT) == []
    assert not (tmp_path / ".cuptimem").exists()
    baselines.save(tmp_path, "baseline", [record(ONE, cpu=figures(1))], ENVIRONMENT)
    again = [record(ONE, outcome, cpu=figures(9)), record(TWO, cpu=figures(2))]
    baselines.save(tmp_path, "baseline", again, ENVIRONMENT)
    assert {nodeid: row["cpu"]["peak"] for nodeid, row in saved_tests(tmp_path).items()} == {ONE: 1, TWO: 2}


def test_a_test_that_ran_again_counts_as_it_ended(tmp_path: Path) -> None:
    runs = [record(ONE, "rerun", cpu=figures(9)), record(ONE, cpu=figures(4))]
    baselines.save(tmp_path, "baseline", runs, ENVIRONMENT)
    assert saved_tests(tmp_path)[ONE]["cpu"]["peak"] == 4
    assert baselines.save(tmp_path, "baseline", [*runs, record(ONE, "failed")], ENVIRONMENT) == []


def test_no_records(tmp_path: Path) -> None:
    assert baselines.save(tmp_path, "baseline", [], ENVIRONMENT) == []
    assert baselines.save(tmp_path, "baseline", [record(ONE)], environment(devices={}, torch=None)) == []
    assert list(tmp_path.iterdir()) == []


def test_two_devices_have_two_files_and_two_of_a_kind_one(tmp_path: Path) -> None:
    run = with_gpus("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3")
    both = record(ONE, cpu=figures(1), cuda_0=figures(2), cuda_1=figures(3))
    baselines.save(tmp_path, "baseline", [both, record(TWO, cpu=figures(4))], run)
    baseline = baselines.load(tmp_path, "baseline")
    assert sorted(baseline.files) == sorted([KEY, H100])
    assert saved_tests(tmp_path, H100)[TWO] == {}
    assert sorted(saved_tests(tmp_path, H100)[ONE]) == ["cuda:0", "cuda:1"]
    peaks = [baseline.row(H100, ONE, "cuda:0"), baseline.row(H100, ONE, "cuda:1"), baseline.row(H100, TWO, "cuda:1")]
    assert [row and row["peak"] for row in peaks] == [2, 3, 0]
    assert baseline.row(H100, "other", "cuda:0") is None
    assert baseline.row("T4-torch-2.13", ONE, "cuda:0") is None


@pytest.mark.parametrize(
    "nodeid",
    [
        "tests/größe.py::test_日本語",
        "t.py::test[a\nb\t\x1b[31m]",
        't.py::test["\\"]',
        "t.py::\udc80",
        "t.py::" + "x" * 9999,
    ],
)
def test_ids_of_all_kinds(tmp_path: Path, nodeid: str) -> None:
    baselines.save(tmp_path, "größe", [record(nodeid, cpu=figures(5)), record(ONE, cpu=figures(6))], ENVIRONMENT)
    row = baselines.load(tmp_path, "größe").row(KEY, nodeid, "cpu")
    assert row is not None and row["peak"] == 5
    assert len((tmp_path / ".cuptimem" / KEY / "größe.json").read_bytes().splitlines()) == 23


def test_ids_are_readable_in_the_file(tmp_path: Path) -> None:
    baselines.save(tmp_path, "baseline", [record("tests/größe.py::test", cpu=figures(5))], ENVIRONMENT)
    assert "tests/größe.py::test" in (tmp_path / ".cuptimem" / KEY / "baseline.json").read_text(encoding="utf-8")


def test_a_missing_baseline(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no baseline was ever saved there. Save one with --cuptimem-save=main"):
        baselines.load(tmp_path, "main")
    baselines.save(tmp_path, "other", [record(ONE, cpu=figures(1))], ENVIRONMENT)
    with pytest.raises(Error, match=r"^\.cuptimem/\*/main\.json: .*the baselines there are: other\."):
        baselines.load(tmp_path, "main")
    baselines.check(tmp_path, "main")


GOOD = {"peak": 1, "allocated": 1, "allocations": 1, "leaked": None, "contributors": []}


def document(**changes: Any) -> str:
    return json.dumps({"schema": 1, "tests": {ONE: {"cpu": {**GOOD, **changes}}}})


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("", "not JSON in line 1, column 1"),
        ('{"schema": 1,\n<<<<<<< HEAD\n', "not JSON in line 2, column 1"),
        (b"\xff\xfe{", "not UTF-8"),
        (b'{"schema": "\xff"}', "not UTF-8"),
        ("[" * 200_000, "nested too deeply"),
        ("[]", "not a baseline of cuptimem"),
        ("{}", "not a baseline of cuptimem"),
        ('{"schema": "1"}', "not a baseline of cuptimem"),
        ('{"schema": 1}', "there are no tests in it"),
        ('{"schema": 1, "tests": {"a": 5}}', "'a' has no devices"),
        ('{"schema": 1, "tests": {"a\\nb": {"cpu": 5}}}', r"'a\\nb' has no figures for 'cpu'"),
        (document(peak=-1), "'cpu': peak is -1"),
        (document(peak=None), "peak is None"),
        (document(peak=True), "peak is True"),
        (document(peak=1.5), "peak is 1.5"),
        (document(peak=1 << 63), "peak is 9223372036854775808"),
        (document(allocations="1"), "allocations is '1'"),
        ('{"schema": 1, "tests": {"a": {"cpu": {}}}}', "peak is 'missing'"),
        (document(contributors=None), "a contributor is None"),
        (document(contributors=[[1, 2, "a", "b"]]), "a contributor is "),
        (document(contributors=[[1, 2, "a", "b", 5]]), "a contributor is "),
        (document(contributors=["x" * 9999]), r"a contributor is 'x+\.\.\.;"),
    ],
)
def test_a_damaged_baseline(tmp_path: Path, content: str | bytes, wrong: str) -> None:
    baselines.save(tmp_path, "main", [record(TWO, cuda_0=figures(1))], with_gpus("T4"))
    path = tmp_path / ".cuptimem" / KEY / "main.json"
    raw = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(raw)
    for call in (
        lambda: baselines.load(tmp_path, "main"),
        lambda: baselines.check(tmp_path, "main"),
        lambda: baselines.save(tmp_path, "main", [record(ONE, cpu=figures(1))], ENVIRONMENT),
    ):
        with pytest.raises(Error, match=wrong) as raised:
            call()
        said = str(raised.value)
        assert "\n" not in said and len(said) < 500
        assert said.startswith(f".cuptimem/{KEY}/main.json: ") and said.endswith("with --cuptimem-save=main")
    assert path.read_bytes() == raw  # not written over
    baselines.check(tmp_path, "other")


def test_folders_that_are_none(tmp_path: Path) -> None:
    (tmp_path / ".cuptimem").write_text("a file")
    with pytest.raises(Error, match=r"\.cuptimem: Not a directory"):
        baselines.load(tmp_path, "main")
    with pytest.raises(Error, match="it was not written"):
        baselines.save(tmp_path, "main", [record(ONE, cpu=figures(1))], ENVIRONMENT)
    (tmp_path / ".cuptimem").unlink()
    (tmp_path / ".cuptimem" / KEY / "main.json").mkdir(parents=True)
    (tmp_path / ".cuptimem" / ".gitignore").write_text("")
    with pytest.raises(Error, match=r"main\.json: Is a directory; restore the file"):
        baselines.load(tmp_path, "main")


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    baselines.save(tmp_path, "main", [record(ONE, cpu=figures(1))], ENVIRONMENT)
    folder = tmp_path / ".cuptimem" / KEY
    before = (folder / "main.json").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        with pytest.raises(Error, match=r"main\.json: File too large; it was not written"):
            baselines.save(tmp_path, "main", [record(TWO, cpu=figures(1))], ENVIRONMENT)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in folder.iterdir()] == ["main.json"]
    assert (folder / "main.json").read_bytes() == before


SAVER = """
import sys
from pathlib import Path
from cuptimem.pytest_plugin import baselines
from tests.tools.pytest_plugin.records import ENVIRONMENT, figures, record
root, who = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for i in range(60):
    records = [record(f"t.py::{who}[{j}]", cpu=figures(i)) for j in range(20)]
    baselines.save(root, "main", records, ENVIRONMENT)
"""


def test_two_processes_that_save_at_once(tmp_path: Path) -> None:
    """Each file that is ever there is a whole one; the last save is in it."""
    savers = [
        subprocess.Popen(
            [sys.executable, "-c", SAVER, str(tmp_path), who],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for who in "ab"
    ]
    for saver in savers:
        assert saver.stdout is not None and saver.stdout.readline() == "ready\n"
    for saver in savers:
        assert saver.stdin is not None
        saver.stdin.write("\n")
        saver.stdin.flush()
    while any(saver.poll() is None for saver in savers):
        baselines.check(tmp_path, "main")
    for saver in savers:
        saver.communicate()
        assert saver.returncode == 0
    last = {name for name, row in saved_tests(tmp_path, name="main").items() if row["cpu"]["peak"] == 59}
    assert any(all(f"t.py::{who}[{j}]" in last for j in range(20)) for who in "ab")
    assert [path.name for path in (tmp_path / ".cuptimem" / KEY).iterdir()] == ["main.json"]


def test_what_a_process_did_not_know_another_one_says(tmp_path: Path) -> None:
    """Before a test has imported PyTorch neither its release nor the instruction set is known."""
    late = environment(torch=None, devices={"cpu": "x86_64"})
    for order in ([late, ENVIRONMENT], [ENVIRONMENT, late]):
        merged = baselines.merged(order)
        assert (merged["torch"], merged["devices"]) == (ENVIRONMENT["torch"], ENVIRONMENT["devices"])
    assert baselines.save(tmp_path, "main", [record("a.py::test_slow")], late) == []
    assert not (tmp_path / ".cuptimem").exists()


def test_a_newer_baseline_is_not_to_be_removed(tmp_path: Path) -> None:
    (saved,) = baselines.save(tmp_path, "main", [record("a.py::test_it", cpu=figures(5))], ENVIRONMENT)
    saved.path.write_text(saved.path.read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(Error) as raised:
        baselines.load(tmp_path, "main")
    assert str(raised.value).endswith(
        "main.json: its schema is 2, and this cuptimem reads 1; use the version of cuptimem that wrote it"
    )
