"""cuptimem advice --budget: the sets that it finds beside all sets of as many changes."""

import itertools
import json

import pytest

from cuptimem import advice
from cuptimem.advice import budget
from cuptimem.advice.catalogue import TECHNIQUES
from cuptimem.advice.technique import COSTS, Technique
from cuptimem.cli import main
from cuptimem.errors import Error
from cuptimem.report.advice import Plan
from cuptimem.report.load import analyze
from cuptimem.report.model import Report

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

MOST = 3  # changes of a set that is tried here
_Names = tuple[str, ...]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    from tests.tools.advice import trainings

    path = trainings.record(tmp_path_factory.mktemp("budget"), "attending", 2).path
    assert path is not None
    return analyze(path, with_lives=True)


@pytest.fixture(scope="module")
def peaks(report: Report) -> dict[_Names, int]:
    """Of every set of so many changes that go together."""
    made: dict[_Names, int] = {}
    applied = [one.name for one in TECHNIQUES if not one.unread and applies(report, one)]
    for number in range(1, MOST + 1):
        for names in itertools.combinations(applied, number):
            try:
                made[names] = advice.estimate(report, **dict.fromkeys(names, True)).bytes
            except Error:
                continue
    assert len(made) > 100
    return made


def applies(report: Report, one: Technique) -> bool:
    try:
        advice.estimate(report, **{one.name: True})
    except Error:
        return False
    return True


def dearest(names: _Names) -> int:
    return max(COSTS.index(one.costs) for one in TECHNIQUES if one.name in names)


def names_of(plan: Plan) -> _Names:
    return tuple(one.technique for one in plan.changes)


def test_against_all_sets(report: Report, peaks: dict[_Names, int]) -> None:
    seen = set()
    lower = sorted(size for size in set(peaks.values()) if size < report.peak.bytes)
    for bound in lower[:: len(lower) // 8]:
        best = min((dearest(names), len(names), size) for names, size in peaks.items() if size <= bound)
        plan = advice.fit(report, bound)
        if plan.complete and len(plan.changes) > MOST:
            assert dearest(names_of(plan)) < best[0]  # cheaper ones than any of so few
            continue
        assert plan.fits and plan.complete and peaks[names_of(plan)] == plan.bytes
        assert (dearest(names_of(plan)), len(plan.changes), plan.bytes) == best, bound
        seen.add(names_of(plan))
    assert len(seen) >= 4 and max(map(len, seen)) > 1


def test_rows_add_up(report: Report, peaks: dict[_Names, int]) -> None:
    plan = advice.fit(report, min(peaks.values()))
    assert plan.peak - sum(one.saved for one in plan.changes) == plan.changes[-1].bytes == plan.bytes
    assert plan.fits and len(plan.changes) > 1


def test_none_is_enough(report: Report, peaks: dict[_Names, int]) -> None:
    plan = advice.fit(report, 1)
    assert not plan.fits and plan.bytes <= min(peaks.values())
    assert advice.estimate(report, **dict.fromkeys(names_of(plan), True)).bytes == plan.bytes


def test_the_verb(report: Report, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_SETS", 100)
    path, half = str(report.path), str(report.peak.bytes // 2)
    assert main(["advice", "--budget", str(report.peak.bytes), path]) == 0
    assert "as it is" in capsys.readouterr().out
    assert main(["advice", "--budget", "1", path]) == 3
    assert "too much with the best" in capsys.readouterr().out
    assert main(["advice", "--budget", half, path]) == 0
    shown = capsys.readouterr().out
    assert main(["advice", "--json", "--budget", half, path]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["fits"] is True and found["bytes"] <= found["budget"] == int(half)
    assert all(row["technique"] in shown for row in found["changes"])


def test_sets_are_bounded(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_SETS", 20)
    plan = advice.fit(report, 1)
    assert not plan.complete and plan.tried == 20 and not plan.fits
