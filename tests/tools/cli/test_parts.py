"""Where one line of the user's holds most of the peak, the library's lines below it are shown."""

import json as json_module
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cuptimem import Frame
from cuptimem.cli import answer
from cuptimem.output import json
from cuptimem.output.text import blocks, descent, peak_views, table_views, text, views
from cuptimem.report import grouping
from cuptimem.report.model import Contents
from tests.tools.cli import stacked
from tests.tools.cli.stacked import ATTENTION, CALL, DATA, LINEAR, MAIN, MLP, RELU, STEP, TRAIN, Call

NOTE = "90 % stands at me/train.py:9 main: shown by the library's line below it"


def rows_of(shown: Sequence[blocks.Block]) -> tuple[tuple[str, ...], ...]:
    (table,) = [block for block in shown if isinstance(block, blocks.Table)]
    return table.rows


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are seen from there."""
    monkeypatch.setattr(os, "getcwd", lambda: "/home")


def test_the_views_go_down_and_say_so(tmp_path: Path) -> None:
    report = stacked.trained(tmp_path)
    for shown in (
        views.summary(report),
        views.peak(report, report.peaks, 9),
        views.table(report, report.peak, "line", "bytes", 9),
    ):
        lines = text.render(shown).splitlines()
        assert sum(NOTE in line for line in lines) == 1
        assert any("models/gpt.py:30" in line for line in lines)
        assert not any("train.py:9" in line and NOTE not in line for line in lines)
    first = answer.lines(report)[1]
    assert first == "        70 B  70 %  models/gpt.py:30 Attention.forward, below me/train.py:9"
    rows = rows_of(peak_views.lines_table(report.peak, 9))
    assert [(row[0], row[3], row[4], row[5]) for row in rows] == [
        ("50 B", "forward", "models/gpt.py:30", "Attention.forward"),
        ("20 B", "backward", "models/gpt.py:30", "Attention.forward"),
        ("20 B", "forward", "models/gpt.py:50", "MLP.forward"),
        ("10 B", "data", "me/train.py:4", "load"),
    ]
    assert [row[4] for row in rows_of(table_views.full(report.peak, "line", "bytes", 9))] == [
        "models/gpt.py:30",
        "models/gpt.py:50",
        "me/train.py:4",
    ]


def test_other_groupings_and_json_stay(tmp_path: Path) -> None:
    """The machine's rows are by what it asked for."""
    report = stacked.trained(tmp_path)
    shown = text.render(table_views.full(report.peak, "function", "bytes", 9))
    assert "main (me/train.py)" in shown and "stands at" not in shown
    rows = grouping.group(report.peak.contributors, "line", "bytes")
    assert [(row.key, row.bytes) for row in rows] == [("me/train.py:9", 90), ("me/train.py:4", 10)]
    first = json.peaks(report, report.peaks)["peaks"][0]["contributors"][0]
    assert (first["line"]["line"], first["library_line"]["line"]) == (9, 30)
    assert json_module.loads(json.text(first)) == first


def rest(*rows: tuple[int, Sequence[Call]]) -> list[tuple[int, str, Sequence[Call]]]:
    return [(size, "forward", calls) for size, calls in rows]


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        # The line itself is the innermost.
        (rest((90, [DATA]), (10, [LINEAR, ATTENTION, MAIN])), None),
        (rest((60, [MAIN]), (15, [LINEAR, CALL, MAIN]), (15, [RELU, CALL, MAIN]), (10, [DATA])), None),
        # Half is not more than half.
        (rest((50, [LINEAR, ATTENTION, MAIN]), (50, [DATA])), None),
        (rest((51, [LINEAR, ATTENTION, MAIN]), (49, [DATA])), 9),
        # One line of PyTorch's says less than the user's: model.cuda().
        (rest((90, [LINEAR, CALL, MAIN]), (10, [DATA])), None),
        (rest((89, [LINEAR, CALL, MAIN]), (1, [RELU, CALL, MAIN]), (10, [DATA])), None),
        # Several say more: model(x) of a Sequential.
        (rest((50, [LINEAR, CALL, MAIN]), (40, [RELU, CALL, MAIN]), (10, [DATA])), 9),
        # One line of another package says more.
        (rest((90, [LINEAR, CALL, ATTENTION, TRAIN, MAIN]), (10, [DATA])), 9),
        # Libraries alone: there is no line of the user's.
        (rest((90, [LINEAR, ATTENTION, STEP]), (10, [RELU, MLP])), None),
    ],
)
def test_when(tmp_path: Path, rows: list[tuple[int, str, Sequence[Call]]], left: int | None) -> None:
    found = descent.line_to_leave(stacked.report(tmp_path, rows).peak)
    assert (found.line if found is not None else None) == left


def test_what_it_goes_down_to(tmp_path: Path) -> None:
    """The innermost line of a package that is neither PyTorch's nor Python's; else the innermost of all."""
    standard: Call = ("/usr/lib/python3.11/contextlib.py", "inner", 81)
    for calls, line in (
        ([LINEAR, CALL, ATTENTION, CALL, STEP, TRAIN, MAIN], 30),
        ([standard, LINEAR, standard, ATTENTION, TRAIN, MAIN], 30),
        ([LINEAR, CALL, MAIN], 134),
        ([MAIN], None),
        ([LINEAR, CALL, STEP], 90),
    ):
        (contributor,) = stacked.report(tmp_path, rest((1, calls))).peak.contributors
        frame = contributor.library_line
        assert (frame.line if frame is not None else None) == line


def test_a_table_by_library_lines(tmp_path: Path) -> None:
    rows = [
        *rest((50, [LINEAR, ATTENTION, MAIN]), (30, [LINEAR, ATTENTION, ("/home/me/eval.py", "run", 2)])),
        (20, "data", [DATA]),
    ]
    report = stacked.report(tmp_path, rows)
    shown = rows_of(table_views.full(report.peak, "library-line", "bytes", 9))
    assert [(row[0], row[4], row[-1]) for row in shown] == [
        ("80 B", "models/gpt.py:30", "me/train.py:9 +1"),
        ("20 B", "me/train.py:4", ""),
    ]


def test_modules_are_those_of_all_places(tmp_path: Path) -> None:
    """What the first place alone was made in says nothing of the others."""
    rows = rest((25, [ATTENTION, CALL, MAIN]), (15, [MLP, CALL, MAIN]), (60, [DATA]))
    same = stacked.report(tmp_path, rows[:1], ["Attention"]).peak
    assert peak_views.modules(same.contributors) == "Attention"
    different = stacked.report(tmp_path, rows, ["Attention", "MLP"]).peak
    assert peak_views.modules(different.contributors[:2]) == "… +2"
    assert peak_views.modules(different.contributors[2:]) == ""
    line = different.lines[1]
    shown = text.render(peak_views.full(stacked.report(tmp_path, rows, ["Attention", "MLP"]), [different], 9))
    assert line.where == "me/train.py:9" and "modules Attention" not in shown


def test_an_entry_without_a_line_of_its_own(tmp_path: Path) -> None:
    report = stacked.report(tmp_path, [(90, "before start", []), (10, "forward", [LINEAR, MAIN])])
    contents: Contents = report.peak
    assert [line.where for line in contents.lines] == ["(before start)", "me/train.py:9"]
    assert descent.line_to_leave(contents) is None


def test_a_name_that_is_nowhere_is_said(tmp_path: Path) -> None:
    report = stacked.trained(tmp_path)
    assert "count as" not in text.render(views.heading(report))
    for code, said in (
        (("trainers",), "  lines of trainers count as the user's"),
        (("trainers", "x"), "  lines of trainers, x count as the user's (the peak has none of x)"),
    ):
        assert said in text.render(views.heading(replace(report, code=code))).splitlines()


def test_what_stands_for_outer_calls_has_no_file(tmp_path: Path) -> None:
    assert json.frame(Frame("", "...", -1))["file"] is None and json.frame(Frame("", "f", 1))["file"] == ""
