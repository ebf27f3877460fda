"""Every view of hostile traces, in Python: an answer or one line. `make fuzz-reports` reads more of them."""

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import Error
from tests.build import SANITIZERS
from tests.record.faults import bounded
from tests.tools.fuzz import fuzz, reports

MUTANTS = 100


@pytest.fixture(scope="module")
def driver(needs_sanitizer: None) -> Path:
    """What makes mutants."""
    return fuzz.build_driver(SANITIZERS["address"])


def read_all(inputs: list[Path], folder: Path) -> reports.Counts:
    counts = reports.run(inputs, folder, folder / "findings")
    assert not counts.findings, reports.shown(counts.findings.values(), folder / "findings")
    assert counts.inputs == len(inputs) and counts.readings == len(inputs) * len(reports.views("t.cmem", "."))
    assert counts.answers + counts.errors == counts.readings
    return counts


@pytest.mark.parametrize("count", [MUTANTS // 2, pytest.param(MUTANTS, marks=pytest.mark.extended)])
def test_mutants(driver: Path, seeds: list[Path], tmp_path: Path, count: int) -> None:
    inputs = [*sorted(fuzz.CORPUS.iterdir()), *seeds]
    counts = read_all(reports.mutants(driver, 1, count, inputs, tmp_path / "mutants"), tmp_path)
    assert counts.answers > counts.readings // 4  # they reach the views


def test_each_kind_of_event_may_name_what_is_not_defined(seeds: list[Path], tmp_path: Path) -> None:
    """A stack or a text: as if there were none, in every view."""
    undefined = [path for path in seeds if path.name.startswith("undefined-")]
    assert len(undefined) >= 15
    counts = read_all(undefined, tmp_path)
    assert counts.errors == 0


def _fail(error: BaseException) -> Callable[[], None]:
    def show() -> None:
        raise error

    return show


@pytest.mark.parametrize(
    ("show", "noticed"),
    [
        (_fail(Error("one line")), None),
        (_fail(Error("two\\nlines")), None),  # its str has it escaped
        (_fail(Error("out of memory")), reports.Finding),
        (_fail(OSError("what no view may let through")), OSError),
        (_fail(SystemExit(2)), SystemExit),
        (lambda: print("[NaN]"), reports.Finding),
        (lambda: print("no JSON"), json.JSONDecodeError),
        (lambda: bytearray(2 * bounded.BASE_BYTES), MemoryError),
    ],
    ids=["error", "lines", "memory", "os error", "usage", "nan", "json", "bytes"],
)
def test_what_is_no_answer_is_noticed(show: Callable[[], None], noticed: type[BaseException] | None) -> None:
    if noticed is None:
        assert not reports.read(show, 1000, is_json=True)
        return
    with pytest.raises(noticed):
        reports.read(show, 1000, is_json=True)


def test_a_process_that_dies_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a crash, or past its CPU time: the input that it was reading is named and kept."""
    hostile = tmp_path / "hostile"
    hostile.write_bytes(b"")
    words = f"import os; open('work/{reports.PROGRESS}', 'w').write('{hostile}\\npeak'); os.kill(os.getpid(), 24)"
    monkeypatch.setattr(reports, "CHILD", ("-c", f"import os, sys; os.chdir(sys.argv[1]); {words}"))
    counts = reports.run([hostile], tmp_path, tmp_path / "findings")
    (said,) = counts.findings.values()
    assert said.startswith(f"{hostile}\npeak\n") and "ended with -24" in said
    assert [path.read_bytes() for path in (tmp_path / "findings").iterdir()] == [b""]


def test_limits_are_those_that_are_stated(tmp_path: Path) -> None:
    before = [resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)]
    used = resource.getrusage(resource.RUSAGE_SELF)
    with reports.within(1 << 20):
        memory, seconds = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU))
    assert memory > bounded.BASE_BYTES + (bounded.BYTES_PER_BYTE << 20)
    assert seconds > used.ru_utime + used.ru_stime + bounded.BASE_SECONDS + 104
    assert [resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)] == before
