"""The comparison of test suites: outcomes from a report log, what differs, what is flaky, and where files come from."""

import json
import subprocess
from pathlib import Path

import pytest

from evidence.foreign import outcomes, sources
from evidence.foreign.__main__ import PROCESS, TABLE, Result, Suite, compare, main, pytest_run, run_suite, suites
from evidence.foreign.outcomes import Difference

pytest.importorskip("pytest_reportlog", reason="pytest-reportlog is not installed here")

# A suite whose outcomes depend on whether cuptimem records it, each in its own way.
TESTS = """
import sys
import pytest

recorded = "cuptimem.record.recorder" in sys.modules

def test_same(): pass
def test_fails(): assert not recorded
@pytest.mark.skipif(recorded, reason="recorded")
def test_skipped(): pass
@pytest.mark.xfail
def test_xfail(): assert not recorded
@pytest.fixture
def broken():
    assert not recorded
def test_error(broken): pass
@pytest.mark.parametrize("x", range(2 if recorded else 1))
def test_missing(x): pass
"""
REPEATED = """
import os, sys
from pathlib import Path

recorded = "cuptimem.record.recorder" in sys.modules
alone = any("::" in word for word in sys.argv)

def test_fails(): assert not recorded
def test_fails_after_others(): assert alone or not recorded
def test_flaky():
    count = Path(os.environ["COUNT"])
    seen = len(count.read_text()) if count.exists() else 0
    count.write_text("x" * (seen + 1))
    assert seen != 1  # the second of all runs, which is the first one recorded
"""


@pytest.fixture
def suite(tmp_path: Path) -> tuple[Suite, Path]:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "test_it.py").write_text(TESTS)
    return Suite("it", "a/b", "v1", ("test_it.py",), environment={"COUNT": str(tmp_path / "count")}), folder


def test_every_outcome_is_seen(suite: tuple[Suite, Path], python: str, tmp_path: Path) -> None:
    seen = [pytest_run(python, *suite, ["test_it.py"], recorded, tmp_path / "log", 60) for recorded in (False, True)]
    assert {name.partition("::")[2]: [row.get(name) for row in seen] for name in outcomes.differing(*seen)} == {
        "": ["exit 0", "exit 1"],
        "test_fails": ["passed", "failed"],
        "test_skipped": ["passed", "skipped"],
        "test_xfail": ["xpassed", "xfailed"],
        "test_error": ["passed", "error"],
        "test_missing[1]": [None, "passed"],
    }
    assert seen[0]["test_it.py::test_same"] == seen[1]["test_it.py::test_same"] == "passed"


def test_what_differs_is_repeated(
    suite: tuple[Suite, Path], python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evidence.foreign.__main__.AGAIN", 1)
    (suite[1] / "test_it.py").write_text(REPEATED)
    found = compare(python, *suite, "test_it.py", tmp_path / "logs")[2]
    assert {row.test.partition("::")[2]: (row.verdict, row.bare, row.recorded) for row in found} == {
        "test_fails": ("differs", ("passed", "passed"), ("failed", "failed")),
        "test_fails_after_others": ("differs only after other tests", ("passed", "passed"), ("failed", "passed")),
        "test_flaky": ("differs only after other tests", ("passed", "passed"), ("failed", "passed")),
    }


def test_a_test_that_ends_its_process_is_named(suite: tuple[Suite, Path], python: str, tmp_path: Path) -> None:
    (suite[1] / "test_it.py").write_text(
        "import os\ndef test_a(): pass\ndef test_b(): os.abort()\ndef test_c(): pass\n"
    )
    found = pytest_run(python, *suite, ["test_it.py"], True, tmp_path / "log", 60)
    assert found == {"test_it.py::test_a": "passed", "test_it.py::test_b": "not ended", PROCESS: "SIGABRT"}


def test_a_run_that_hangs_is_ended(suite: tuple[Suite, Path], python: str, tmp_path: Path) -> None:
    (suite[1] / "test_it.py").write_text("import time\ndef test_a(): pass\ndef test_b(): time.sleep(600)\n")
    found = pytest_run(python, *suite, ["test_it.py"], False, tmp_path / "log", 10)
    assert found[PROCESS] == "hung" and found["test_it.py::test_a"] == "passed"


def test_a_run_that_records_nothing_is_noticed(suite: tuple[Suite, Path], python: str, tmp_path: Path) -> None:
    (suite[1] / "test_it.py").write_text(
        "import glob, os\ndef test_a():\n    for f in glob.glob('../log*.cmem'): os.remove(f)\n"
    )
    assert pytest_run(python, *suite, ["test_it.py"], True, tmp_path / "log", 60)[PROCESS] == "exit 0, not recorded"


def test_a_run_without_tests_is_a_failure(python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a+b").mkdir()
    (tmp_path / "a+b" / "test_it.py").write_text("")
    result = Result([])
    run_suite(Suite("it", "a/b", "v1", ("test_it.py",)), ["test_it.py"], python, "2", tmp_path, result)
    assert not result.complete and "it test_it.py: no test ran, exit 5" in result.about[-1]


def report(nodeid: str, when: str, outcome: str, **more: object) -> str:
    return json.dumps({"$report_type": "TestReport", "nodeid": nodeid, "when": when, "outcome": outcome, **more})


def test_outcomes_of_a_log() -> None:
    lines = [
        json.dumps({"$report_type": "CollectReport", "nodeid": "b.py", "outcome": "failed"}),
        json.dumps({"$report_type": "CollectReport", "nodeid": "c.py", "outcome": "skipped"}),
        *(report("a", when, "passed") for when in ("setup", "call", "teardown")),
        *(report("t", when, "failed" if when == "teardown" else "passed") for when in ("setup", "call", "teardown")),
        report("s", "setup", "skipped"),
        report("s", "teardown", "passed"),
        report("x", "setup", "skipped", wasxfail=""),
        report("x", "teardown", "passed"),
        report("n", "setup", "passed"),
        '{"cut off',
    ]
    assert outcomes.of_log(lines) == {
        "b.py": "not collected",
        "c.py": "skipped",
        "a": "passed",
        "t": "error",
        "s": "skipped",
        "x": "xfailed",
        "n": "not ended",
    }


@pytest.mark.parametrize(
    ("bare", "recorded", "verdict"),
    [
        ("pppp", "ffff", "differs"),
        ("p", "f", "differs"),
        ("pppp", "fppp", "differs only after other tests"),
        ("ppfp", "fppp", "flaky"),
        ("pppp", "ffpf", "flaky"),
    ],
)
def test_verdicts(bare: str, recorded: str, verdict: str) -> None:
    assert Difference("t", tuple(bare), tuple(recorded)).verdict == verdict


def test_the_result_names_what_differs() -> None:
    found = [
        ("s", "r", Difference("a.py::t", ("passed",) * 4, ("failed",) * 4)),
        ("s", "r", Difference("a.py::f", ("passed", "passed", "failed", "passed"), ("failed",) * 4)),
    ]
    text = outcomes.document("Title", ["about"], [("s", "r", 1234, "1,234 passed", "1,233 passed, 1 failed")], found)
    assert "1,234 tests; 1 that differ, 0 that differ only after other tests, 1 that are flaky" in text
    assert "- s: `a.py::t`: bare passed, passed, passed, passed; recorded failed, failed, failed, failed" in text
    assert (
        text.index("## Tests differ") < text.index("a.py::t") < text.index("## Tests are flaky") < text.index("a.py::f")
    )


def test_the_table() -> None:
    table = suites(TABLE.read_text())
    assert set(table) == {"pytorch", "accelerate", "einops"}
    assert all(suite.short and not set(suite.short) & set(suite.long) for suite in table.values())
    with pytest.raises(ValueError, match="x: .*unknown"):
        suites('[x]\nrepository = "a/b"\nref = "v1"\nshort = ["t.py"]\nunknown = 1\n')


def test_files_come_from_a_git_directory_or_a_folder(tmp_path: Path) -> None:
    work, given = tmp_path / "work", tmp_path / "given"
    clone = given / "a+b"
    (clone / "test").mkdir(parents=True)
    (clone / "test" / "t.py").write_text("one")
    (clone / "other").write_text("other")
    (clone / "version.txt").write_text("1.2\n")
    folder, origin = sources.checkout("a/b", "v1", ("test",), work, given)
    assert [path.name for path in folder.rglob("*.py")] == ["t.py"] and not (folder / "other").exists()
    assert origin == "a/b, unpacked source of 1.2"
    git = ["git", "-C", clone, "-c", "user.name=n", "-c", "user.email=e@e"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "m"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    (clone / "test" / "t.py").write_text("two")
    folder, origin = sources.checkout("a/b", "v1", ("test",), work, given)
    assert (folder / "test" / "t.py").read_text() == "one" and origin == "a/b v1"
    with pytest.raises(sources.Unavailable, match="v2"):
        sources.checkout("a/b", "v2", (), work, given)
    with pytest.raises(sources.Unavailable, match=r"has no c\+d"):
        sources.checkout("c/d", "v1", (), work, given)


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
    assert "there are pytorch, accelerate, einops" in capsys.readouterr().err
