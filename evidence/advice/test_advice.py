"""The corpus is whole, its authors and the allocator agree; the judge on fakes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from evidence.advice import follow, judge, suite
from evidence.advice.page import Result, page

PROGRAMS = suite.programs()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program(program: suite.Program) -> None:
    assert program.about
    assert set(program.counted["changes"]) == {change.key for change in program.changes}
    disagree = [change.key for change in program.changes if program.worth(change) != change.saves]
    assert not disagree
    for change in program.changes:
        assert program.changed(change) != program.path.read_text() or change.environment
        assert program.right(change)


def test_techniques_are_covered() -> None:
    """Three pairs each, one with a public library's model, and a program where it saves nothing."""
    lacking = []
    for technique in sorted(suite.FREE | suite.TRADE):
        having = [(p, c) for p in PROGRAMS for c in p.changes if c.technique == technique]
        saving = [p for p, c in having if p.worth(c)]
        if len({p.name for p in saving}) < 3 or not any(p.libraries for p in saving):
            lacking.append(f"{technique} saves in {[p.name for p in saving]}")
        if not any(not p.worth(c) for p, c in having):
            lacking.append(f"{technique} saves wherever it is")
    assert not lacking, "\n".join(lacking)


def test_names_give_nothing_away() -> None:
    words = {word for technique in suite.FREE | suite.TRADE for word in technique.split("_")} - {"batch", "late", "no"}
    told = [program.name for program in PROGRAMS if words & set(re.split("[^a-z]+", program.name))]
    assert not told


MIB = 1024**2


def change(technique: str, **more: object) -> suite.Change:
    fields: dict[str, object] = {
        "key": technique,
        "technique": technique,
        "saves": True,
        "edits": (("loss = one", "two"),),
    }
    return suite.Change(**(fields | more))  # type: ignore[arg-type]


@pytest.fixture
def program(tmp_path, monkeypatch) -> suite.Program:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(suite, "PROGRAMS", tmp_path)
    (tmp_path / "pots.py").write_text('"""Pots."""\nimport torch\nloss = one\nstep()\nthe_end()\n')
    changes = (change("no_grad", near=("step()",)), change("fused"), change("batch", value=4))
    after = {"no_grad": 60, "fused": 100, "batch": 70}
    counted = {
        "before": {"allocated": 100 * MIB, "reserved": 120 * MIB},
        "changes": {key: {"allocated": size * MIB, "reserved": 120 * MIB} for key, size in after.items()},
    }
    return suite.Program("pots", changes, (), (), False, counted)


def row(
    technique: str, line: int | None, saved: int, file: str = "/a/pots.py", cost: str = "none"
) -> dict[str, object]:
    frame = None if line is None else {"file": file, "line": line}
    return {"technique": technique, "line": frame, "saved": saved * MIB, "bytes": (100 - saved) * MIB, "cost": cost}


def advised(*proposals: dict[str, object]) -> dict[str, Any]:
    return {"advice": {"proposals": proposals}}


@pytest.mark.parametrize(("line", "outcome"), [(3, "right"), (4, "near"), (5, "wrong line"), (None, "wrong line")])
def test_lines(program: suite.Program, line: int | None, outcome: str) -> None:
    proposals = judge.rows(program, advised(row("no_grad", line, 38)))
    found = {finding.technique: finding for finding in judge.findings(program, proposals)}
    assert found["no_grad"].outcome == outcome
    assert found["no_grad"].error == pytest.approx(-0.05)
    assert found["batch"].outcome == "missed"
    assert set(found) == {"no_grad", "batch"}  # fused saves nothing


def test_a_line_of_a_library_is_wrong(program: suite.Program) -> None:
    assert not judge.rows(program, advised(row("no_grad", 3, 38, "/lib/adam.py")))[0].lines


def test_what_is_tried_alone_is_proposed(program: suite.Program) -> None:
    """Where no rule predicts it and no value was chosen for the try."""
    frame = {"file": "/a/pots.py", "line": 3}
    trying = {
        "unchanged": {"peak_bytes": 100 * MIB, "reserved_bytes": 200 * MIB},
        "tried": {
            "no_grad": {"peak_bytes": 60 * MIB, "frame": frame},
            "fused": {"peak_bytes": 99 * MIB, "frame": frame},
            "batch": {"peak_bytes": 50 * MIB, "frame": frame},
        },
    }
    rows = judge.rows(program, {**advised(), **trying})
    assert [(one.technique, one.saved, one.tried) for one in rows] == [("no_grad", 40 * MIB, True)]
    found = judge.findings(program, rows)[0]
    assert (found.outcome, found.error) == ("right", None)
    assert not any(one.tried for one in judge.rows(program, {**advised(row("no_grad", 3, 38)), **trying}))


def test_alarms(program: suite.Program) -> None:
    proposals = judge.rows(program, advised(row("fused", 3, 10), row("sgd", 3, 10), row("no_grad", 3, 40)))
    found = judge.alarms(program, proposals, {})
    assert [(alarm.technique, alarm.free, alarm.counted) for alarm in found] == [
        ("fused", True, True),
        ("sgd", False, False),
    ]
    with_care = judge.rows(program, advised(row("fused", 3, 10, cost="care: it may be read")))
    assert [(alarm.free, alarm.counted) for alarm in judge.alarms(program, with_care, {})] == [(False, True)]


def test_peaks_and_page(program: suite.Program) -> None:
    said = {
        "what_if": {"no_grad": {"bytes": 66 * MIB}, "batch": {"error": "no"}},
        "tried": {"no_grad": {"peak_bytes": 60 * MIB}},
    }
    peaks = judge.peaks(program, said)
    assert peaks[0].error == pytest.approx(0.1)
    assert peaks[0].try_error == 0
    assert peaks[2].error is None
    result = Result(judge.findings(program, []), [], peaks, failed={"pans": "it failed"})
    head: dict[str, object] = {"date": "today", "about": "here", "programs": 1, "changes": 3, "seen": 0}
    text = page(result, result, head)
    assert "| missed | 2 | 2 |" in text
    assert "- pots, no_grad: 66.0 MiB predicted, 60.0 true (+10.0%)" in text
    assert "- pans: it failed" in text


FOLLOWED = """\
import torch
for x in (1, 2):
    y = torch.rand(
        x,
    )
    for z in (y,):
        print(z)
print(1)
"""


def test_deletions_are_written_behind_their_statements() -> None:
    text = follow.deleting(FOLLOWED, [("y", 6), ("x", 3), ("z", 7)])
    assert text.splitlines()[3:9] == [
        "        x,",
        "    )",
        "    del x",
        "    for z in (y,):",
        "        print(z)",
        "        del z",
    ]
    assert text.splitlines()[9] == "    del y"
    with pytest.raises(ValueError, match="line 4"):
        follow.deleting(FOLLOWED, [("x", 4)])


def test_no_grad_is_written_around_its_statements() -> None:
    text = follow.without_graph(FOLLOWED, [7, 4])
    assert text.splitlines()[1:] == [
        "for x in (1, 2):",
        "    with torch.no_grad():",
        "        y = torch.rand(x)",
        "    for z in (y,):",
        "        with torch.no_grad():",
        "            print(z)",
        "print(1)",
    ]
    with pytest.raises(ValueError, match="line 6"):
        follow.without_graph(FOLLOWED, [6])


@pytest.mark.parametrize(("followed", "alarms"), [(60, 0), (99, 1), (None, 1)])
def test_a_row_of_release_is_judged_by_itself(program: suite.Program, followed: int | None, alarms: int) -> None:
    """Whatever an author's own change of that name saves. One with which the program fails is a false alarm."""
    mine = dataclasses.replace(
        program,
        changes=(*program.changes, change("release")),
        counted={**program.counted, "changes": {**program.counted["changes"], "release": {"allocated": 100 * MIB}}},
    )
    said = {
        "what_if": {"release": {"bytes": 60 * MIB}},
        "tried": {"release": {"peak_bytes": 60 * MIB}},
        "followed": {"release": {"error": "it failed"} if followed is None else {"allocated": followed * MIB}},
    }
    found = judge.alarms(mine, judge.rows(mine, advised(row("release", 3, 40))), said)
    assert len(found) == alarms and all(alarm.free and alarm.counted for alarm in found)
    peaks = [peak for peak in judge.peaks(mine, said) if peak.technique == "release"]
    assert [peak.key for peak in peaks] == ["release" if followed is None else "release, its row"]
    assert peaks[0].true == (100 if followed is None else followed) * MIB
