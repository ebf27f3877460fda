"""The tables of published figures and expected verdicts, and the pages that are made of them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evidence.published import accuracy, runs, tables, verdicts
from evidence.published.tables import GIB, Figure, Program, Setup

VERDICTS = ("fits", "does not fit")
ABOUT = {"date": "2026-11-27", "commits": "abc (3 results)", "torch": "2.14.1", "libraries": "timm 1"}


def test_enough_programs() -> None:
    programs = tables.programs()
    assert len(programs) >= 60
    assert sum(program.within_10_percent for program in programs) >= 15
    assert {program.expected for program in programs} == set(VERDICTS)


@pytest.mark.parametrize("program", tables.programs(), ids=lambda program: program.name)
def test_program(program: Program) -> None:
    assert program.file.is_file()
    assert program.source.startswith("https://")
    assert program.basis in ("arithmetic", "published")
    assert program.within_10_percent == (abs(program.margin - 1) <= 0.1)
    # The margin says on which side of the card's size the program was expected.
    assert program.expected == ("fits" if program.margin <= 1 else "does not fit")


def test_every_program_is_run() -> None:
    run = {program.file for program in tables.programs()}
    assert run == set((tables.FOLDER / "programs").glob("*.py"))


def test_enough_figures() -> None:
    setups = tables.setups()
    simulated = [figure for figure in tables.figures() if figure.name in setups]
    assert len(simulated) >= 40
    assert len({figure.source for figure in simulated}) >= 12


def test_no_figure_is_dropped() -> None:
    names = {figure.name for figure in tables.figures()}
    setups, left_out = set(tables.setups()), set(tables.left_out())
    assert setups | left_out == names
    assert not setups & left_out
    assert all(tables.left_out().values())


@pytest.mark.parametrize("setup", tables.setups().values(), ids=lambda setup: setup.figure)
def test_setup(setup: Setup) -> None:
    figure = next(figure for figure in tables.figures() if figure.name == setup.figure)
    assert setup.script.is_file()
    assert f'"{setup.figure}"' in setup.script.read_text() or setup.script.name in PARAMETERS
    assert setup.what in ("measured", "used", "verdict")
    assert (figure.number is None) == (setup.what == "verdict")


# Scripts that take the figure's id apart.
PARAMETERS = ("cross_entropy.py", "bert.py", "sam.py", "generation.py", "tune.py", "torchao_optim.py")


def test_explanations_name_rows() -> None:
    assert set(tables.explanations("verdicts")) <= {program.name for program in tables.programs()}
    assert set(tables.explanations("accuracy")) <= set(tables.setups())


def _program(name: str, expected: str, near: bool = False) -> Program:
    file = Path("p.py")
    return Program(
        name, file, (), (), "kind", "lib", "https://s", "T4", 14.7, expected, "published", 2.0, 0.9, near, 1.0
    )


def _answer(verdict: str, low: int = 2 * GIB, high: int | None = None, **more: Any) -> dict[str, Any]:
    device = {"allocated": {"low": low, "high": high}, "used": {"low": low + GIB, "high": high}}
    return {"verdict": verdict, "reason": f"because {verdict}", "devices": [device], "peak": 3 * GIB, **more}


def _result(answer: Mapping[str, Any], measured: list[float] | None = None) -> dict[str, Any]:
    return {"answer": answer, "seconds": 60.0, "measured": measured or []}


@pytest.mark.parametrize(
    ("expected", "verdict", "outcome"),
    [
        ("fits", "fits", "right"),
        ("does not fit", "does not fit", "right"),
        ("does not fit", "fits with settings", "right"),
        ("fits", "fits with settings", "wrong"),
        ("fits", "does not fit", "wrong"),
        ("fits", "undecided", "undecided"),
        ("fits", "script failed", "failed"),
        ("fits", "nothing simulated", "failed"),
    ],
)
def test_outcome(expected: str, verdict: str, outcome: str) -> None:
    row = verdicts.row_of(_program("001", expected), _result(_answer(verdict)))
    assert (row.outcome, row.simulated) == (outcome, verdict)


def test_verdicts_page() -> None:
    rows = [
        verdicts.row_of(_program("001", "fits", near=True), _result(_answer("fits", high=2 * GIB))),
        verdicts.row_of(_program("002", "fits"), _result(_answer("does not fit"))),
        verdicts.row_of(_program("003", "fits"), _result(_answer("undecided", high=4 * GIB))),
        verdicts.row_of(_program("004", "fits"), None),
    ]
    page = verdicts.page(rows, {"002": "the card | was full"}, ABOUT)
    assert "**4 runs: 2 decided, of which 1 as expected and 1 not; 1 undecided, 0 failed.**" in page
    assert "| all | 4 | 1 | 1 | 1 | 0 | 1 |" in page
    assert "| within 10 % of the card's size | 1 | 1 | 0 | 0 | 0 | 0 |" in page
    assert "| 002 | T4 | fits | does not fit | because does not fit | the card \\| was full |" in page
    assert f"| 003 | T4 | fits | undecided | because undecided | {verdicts.NOT_EXPLAINED} |" in page
    assert "| fits | right | 2.00 | 2.00 | 60 |" in page
    assert "| does not fit | wrong | 2.00 | 3.00 | 60 |" in page
    assert "| undecided | undecided | 2.00 | 2.00 to 4.00 | 60 |" in page
    assert "| not run | not run | 2.00 |  | 0 |" in page


def _figure(name: str, value: float | str, unit: str, source: str = "a page") -> Figure:
    return Figure(name, source, "https://p", "peak", value, unit, "T4", "2.1", "a set-up", "")


def _setup(name: str, what: str = "measured", ends: int = 2) -> Setup:
    return Setup(name, Path("s.py"), (name,), ("--device", "t4"), ends, what, False, "", False, "", "")


def test_accuracy_rows() -> None:
    attempts = [{"with": "high end", "outcome": "ran"}, {"with": "in 1.0 GiB", "outcome": "ran"}]
    for ran in (1, 2):
        lines = [100.0 * 2**20, 104.0 * 2**20, 103.0 * 2**20][: ran + 1]
        other = _result(_answer("fits", attempts=attempts[:ran]), lines)
        row = accuracy.row_of(_figure("a", 100, "MiB"), _setup("a"), {"a": other})
        assert (row.low, row.high, row.error) == (100 * 2**20, 104 * 2**20, 4.0)
    other = _result(_answer("fits", attempts=attempts[1:]), [100.0 * 2**20, 103.0 * 2**20])
    assert accuracy.row_of(_figure("a", 100, "MiB"), _setup("a"), {"a": other}).high is None
    used = _result(_answer("undecided", high=GIB, program={"exit_code": 0}))
    row = accuracy.row_of(_figure("a", 3, "GiB"), _setup("a", "used"), {"a": used})
    assert (row.low, row.error) == (3 * GIB, pytest.approx(-66.67, abs=0.01))
    row = accuracy.row_of(_figure("a", 100, "MiB"), _setup("a"), {"a": _result(_answer("script failed"))})
    assert (row.low, row.error, row.problem) == (None, None, "because script failed")
    row = accuracy.row_of(_figure("a", 5, "tensors of 1 GiB"), _setup("a"), {"a": _result(_answer("fits"), [4])})
    assert row.error == pytest.approx(-20)


def test_accuracy_page() -> None:
    figures = [_figure("a", 100, "MiB"), _figure("b", 2, "GB (1e9)"), _figure("c", "OOM", "verdict", "an issue")]
    figures.append(_figure("d", 1, "GB"))
    results = {
        "a": _result(_answer("fits"), [101.0 * 2**20]),
        "b": _result(_answer("fits"), [1.5e9]),
        "c": _result(_answer("fits with settings")),
    }
    setups = [_setup("a"), _setup("b"), _setup("c", "verdict")]
    rows = [accuracy.row_of(figure, setup, results) for figure, setup in zip(figures, setups, strict=False)]
    page = accuracy.page(rows, figures, {"d": "needs its card"}, {}, ABOUT)
    assert "4 figures were collected" in page
    for fact in ("3 figures of 2 sources", "1 of 2 within 1 %", "1 beyond", "1 of 1 verdicts the same"):
        assert f"- {fact}\n" in page
    assert "| 100.00 MiB | 101.00 MiB | +1.0 % |  |" in page
    assert f"| 2.00 GB | 1.50 GB | **-25.0 %** | **{verdicts.NOT_EXPLAINED}** |" in page
    assert "| out of memory | does not fit | same |  |" in page
    assert "| d | a page | 1 GB | needs its card |" in page


def test_what_was_fitted_does_not_count() -> None:
    figures = [_figure(name, 100, "MiB") for name in "abc"]
    results = {name: _result(_answer("fits"), [100.0 * 2**20]) for name in "abc"}
    setups = [
        _setup("a"),
        dataclasses.replace(_setup("b"), fitted=True),
        dataclasses.replace(_setup("c"), revised="a mistake (90 MiB before)"),
    ]
    rows = [accuracy.row_of(figure, setup, results) for figure, setup in zip(figures, setups, strict=True)]
    facts = accuracy.summary(rows)
    assert "2 of 2 within 1 %" in facts
    assert "1 chosen to agree, and not counted among the errors" in facts
    assert any(fact.startswith("of the 1 whose set-up was not touched") for fact in facts)
    page = accuracy.page(rows, figures, {}, {}, ABOUT)
    assert "| 0.0 % | chosen to agree |" in page
    assert "set-up corrected after a first result: a mistake (90 MiB before)" in page


def test_broken_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def simulate(job: runs.Job, timeout: int) -> dict[str, Any]:
        seen.append(job.name)
        return {"name": job.name, "options": list(job.options), "program": list(job.program), "seconds": 1.0}

    monkeypatch.setattr(runs, "simulate", simulate)
    jobs = [runs.Job(name, (), ("p.py",)) for name in "abc"]
    path = tmp_path / "build" / "results.jsonl"
    runs.run(jobs[:2], path, 1, 600, lambda row: row["name"])
    path.write_text(path.read_text() + '{"name": "c", "opt')
    assert set(runs.run(jobs, path, 1, 600, lambda row: row["name"])) == {"a", "b", "c"}
    assert seen == ["a", "b", "c"]
    # Other options, and what is to be forgotten, is simulated again; the last line counts.
    changed = [runs.Job("a", ("--memory", "1GiB"), ("p.py",)), *jobs[1:]]
    found = runs.run(changed, path, 1, 600, lambda row: row["name"], frozenset("b"))
    assert sorted(seen[3:]) == ["a", "b"]
    assert found["a"]["options"] == ["--memory", "1GiB"]
    assert json.loads(path.read_text().splitlines()[-1])["name"] in "ab"
    assert "simulated in" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["verdicts", "accuracy"])
def test_stored_page_has_every_row(page: str) -> None:
    path = tables.FOLDER / f"{page}.md"
    names = [p.name for p in tables.programs()] if page == "verdicts" else [f.name for f in tables.figures()]
    text = path.read_text()
    assert [name for name in names if f"[{name}](" not in text and f"| {name} |" not in text] == []
