"""A line is one of the user's with all its bytes; what a library did below it stands under it."""

import json as json_module
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cuptimem import Frame
from cuptimem.cli import answer
from cuptimem.output import json
from cuptimem.output.text import blocks, part_views, peak_views, table_views, text, views
from cuptimem.report import grouping
from cuptimem.report.model import Contents, Line
from cuptimem.report.parts import drives_loop, parts_of
from tests.tools.cli import stacked
from tests.tools.cli.stacked import ATTENTION, CALL, DATA, LINEAR, MAIN, MLP, RELU, SITE, STEP, TRAIN, Call


def rows_of(shown: Sequence[blocks.Block]) -> tuple[tuple[str, ...], ...]:
    (table,) = [block for block in shown if isinstance(block, blocks.Table)]
    return table.rows


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are seen from there."""
    monkeypatch.setattr(os, "getcwd", lambda: "/home")


def parts(line: Line, contents: Contents) -> list[tuple[str, int]]:
    return [(part.name, part.bytes) for part in parts_of(line, drives_loop(line, contents))]


def test_a_line_has_all_its_bytes_in_every_view(tmp_path: Path) -> None:
    """It drives a library's loop: what is below it stands under it, by module."""
    report = stacked.trained(tmp_path, called=True)
    for shown in (
        views.summary(report),
        views.table(report, report.peak, "line", "bytes", 9),
    ):
        lines = text.render(shown).splitlines()
        (at,) = [i for i, line in enumerate(lines) if "me/train.py:9" in line]
        assert lines[at].split()[:4] == ["90", "B", "90", "%"]
        assert lines[at + 1].split() == ["of", "which", "70", "B", "78", "%", "h.*.attn", "models/gpt.py:30"]
        assert lines[at + 2].split() == ["20", "B", "22", "%", "h.*.mlp", "models/gpt.py:50"]
        assert "me/train.py:4" in lines[at + 3]
    assert answer.lines(report)[1] == "        90 B  90 %  me/train.py:9 main, of which 70 B h.*.attn, 20 B h.*.mlp"
    table = peak_views.lines_table(report.peak, 9)
    assert [(row[0], row[3], row[4], row[5]) for row in rows_of(table)] == [
        ("90 B", "activation", "me/train.py:9", "main"),
        ("10 B", "input", "me/train.py:4", "load"),
    ]
    assert [line.bytes for line in report.peak.lines] == [90, 10]
    assert report.peak.lines[0].phases == ("forward", "backward")
    assert "most at me/train.py:9" in repr(report.peak)
    shown = text.render(views.peak(report, report.peaks, 9))
    assert "90 %  me/train.py:9 in main" in shown and "h.*.attn" in shown


def test_other_groupings_and_json_stay(tmp_path: Path) -> None:
    """The machine's rows are by what it asked for, and have both levels."""
    report = stacked.trained(tmp_path, called=True)
    shown = text.render(table_views.full(report.peak, "function", "bytes", 9))
    assert "main (me/train.py)" in shown and "of which" not in shown
    rows = grouping.group(report.peak.contributors, "line", "bytes")
    assert [(row.key, row.bytes) for row in rows] == [("me/train.py:9", 90), ("me/train.py:4", 10)]
    first = json.peaks(report, report.peaks)["peaks"][0]["contributors"][0]
    assert (first["line"]["line"], first["library_line"]["line"]) == (9, 30)
    assert json_module.loads(json.text(first)) == first


def rest(*rows: tuple[int, Sequence[Call]]) -> list[tuple[int, str, Sequence[Call]]]:
    return [(size, "forward", calls) for size, calls in rows]


FIT: Call = ("/home/me/train.py", "Mine.training_step", 20)
LOADER: Call = (SITE + "torch/utils/data/dataloader.py", "DataLoader.__next__", 700)


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ([LINEAR, CALL, ATTENTION, CALL, STEP, TRAIN, MAIN], [9]),  # trainer.train()
        ([LINEAR, CALL, FIT, STEP, TRAIN, MAIN], [9]),  # trainer.fit(module) runs code of the user's
        ([LINEAR, CALL, MAIN], []),  # model(x)
        ([LINEAR, CALL, ATTENTION, CALL, MAIN], []),  # model(x) of a package's model
        ([FIT, STEP, CALL, MAIN], []),  # a module's own calls back
        ([STEP, TRAIN, MAIN], []),  # no module is called: no loop is seen
        ([LINEAR, CALL, LOADER, TRAIN, MAIN], []),  # a data set, below tqdm
        ([LINEAR, CALL, STEP, TRAIN], []),  # libraries alone
    ],
)
def test_which_lines_drive_a_loop(tmp_path: Path, calls: Sequence[Call], lines: Sequence[int]) -> None:
    report = stacked.report(tmp_path, rest((1, calls)), called=True)
    assert [frame.line for frame in report.peak.loops] == lines


def test_the_form_depends_on_stacks_and_not_on_shares(tmp_path: Path) -> None:
    """A line that drives a loop in one stack is broken down by module in all, in every moment, however small it is."""
    state = [(SITE + "torch/optim/adam.py", "_init_group", 160), STEP, TRAIN, MAIN]
    loop = [LINEAR, CALL, ATTENTION, CALL, STEP, TRAIN, MAIN]
    report = stacked.report(
        tmp_path, rest((1, loop), (9, state), (990, [DATA])), names=["h.0.attn", "h.1.attn"], called=True
    )
    _, line = report.peak.lines
    assert parts(line, report.peak) == [("h.*.attn", 10)]
    assert part_views.under(line, report.peak) == ()  # 1 % is not worth a second line


def test_parts_are_named_by_what_is_called(tmp_path: Path) -> None:
    """By the call where it is PyTorch's, by the function where it is a package's; its own blocks by the line."""
    report = stacked.report(
        tmp_path,
        rest(
            (50, [LINEAR, CALL, MAIN]),
            (20, [RELU, CALL, MAIN]),
            (20, [LINEAR, CALL, ATTENTION, CALL, MAIN]),
            (5, [MAIN]),
        ),
        texts={LINEAR: "return F.linear(input, self.weight)", RELU: "result = torch.relu(input)"},
    )
    (line,) = report.peak.lines
    assert line.bytes == 95
    named = [("linear", 50), ("Attention.forward", 20), ("relu", 20), ("the line itself", 5)]
    assert parts(line, report.peak) == named
    said = "of which 50 B linear, 20 B Attention.forward, 20 B relu, 5 B the line itself"
    assert part_views.in_a_line(line, report.peak) == said
    assert part_views.in_a_line(line, report.peak, 1) == "of which 50 B linear, 45 B in 3 more"
    (alone,) = stacked.report(tmp_path, rest((90, [LINEAR, CALL, MAIN]), (5, [MAIN]))).peak.lines
    assert part_views.in_a_line(alone, report.peak) == ""  # says what the line says
    wrapped = [STEP, MAIN]
    named = "of which 90 B Loop.step"
    for source, said in (("loop.step()", ""), ("self.fit()", named), ("loop.step(); rate.step()", named)):
        (alone,) = stacked.report(tmp_path, rest((90, wrapped)), texts={MAIN: source}).peak.lines
        assert part_views.in_a_line(alone, report.peak) == said


def test_what_a_compiler_of_graphs_runs_is_named_by_the_operator(tmp_path: Path) -> None:
    """Not by the overload, and not by the compiler's own functions."""
    made = (SITE + "torch/_ops.py", "OpOverload.__call__", 916)
    runs = (SITE + "torch/_functorch/_aot_autograd/utils.py", "make_boxed_func.<locals>.g", 118)
    graph = ("<eval_with_key>.3", "forward", 39)
    texts = {
        made: "return self._op(*args, **kwargs)",
        graph: "torch.ops.aten.addmm.default(primals_5, getitem, t)",
        runs: "return f(*args)",
    }
    report = stacked.report(tmp_path, rest((50, [made, graph, runs, MAIN]), (20, [runs, MAIN])), texts=texts)
    assert parts(report.peak.lines[0], report.peak) == [("addmm", 50), ("compiled code", 20)]


def test_parts_that_change_no_digit_are_not_said(tmp_path: Path) -> None:
    million = 1 << 20
    calls = rest((3 * million, [LINEAR, CALL, MAIN]), (2 * million, [RELU, CALL, MAIN]), (900, [MAIN]))
    peak = stacked.report(tmp_path, calls).peak
    assert parts(peak.lines[0], peak) == [("forward", 3 * million), ("relu", 2 * million), ("the line itself", 900)]
    assert part_views.in_a_line(peak.lines[0], peak) == "of which 3.0 MiB forward, 2.0 MiB relu"


@pytest.mark.parametrize("width", [60, 80])
def test_at_few_columns_a_name_keeps_its_end_and_no_part_is_cut_off(tmp_path: Path, width: int) -> None:
    name = "encoder.layers.3.intermediate.intermediate_activation"
    loop = [LINEAR, CALL, ATTENTION, CALL, STEP, TRAIN, MAIN]
    report = stacked.report(tmp_path, rest((90, loop), (10, loop)), names=[name, "head"], called=True)
    for shown in (
        views.summary(report),
        views.peak(report, report.peaks, 9),
        views.table(report, report.peak, "line", "bytes", 9),
    ):
        lines = [line for line in text.render(shown, width).splitlines() if "90 %" in line]
        assert lines and all(line.endswith("activation") and len(line) <= width for line in lines)
    calls = [(f"/home/site-packages/lib/{i}.py", f"a_function_with_a_name_{i}", i) for i in range(4)]
    report = stacked.report(tmp_path, rest(*((10 + i, [call, MAIN]) for i, call in enumerate(calls))))
    for shown in (views.summary(report), views.peak(report, report.peaks, 9)):
        words = " ".join(text.render(shown, width).split())
        assert (
            "of which 13 B a_function_with_a_name_3, 12 B a_function_with_a_name_2, 11 B a_function_with_a_name_1, "
            "10 B a_function_with_a_name_0" in words
        )


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
    """It stands behind the lines, and is there however few have room."""
    rows = [(90, "before start", []), (10, "forward", [LINEAR, MAIN]), (4, "other", [DATA])]
    report = stacked.report(tmp_path, rows)
    contents: Contents = report.peak
    assert [line.where for line in contents.lines] == ["me/train.py:9", "me/train.py:4", "(before start)"]
    assert parts(contents.lines[-1], contents) == []
    for table in (
        peak_views.lines_table(contents, 1),
        table_views.full(contents, "line", "bytes", 1),
        peak_views.full(report, [contents], 1),
    ):
        shown = text.render(table)
        assert shown.index("me/train.py:9") < shown.index("(before start)") and "train.py:4" not in shown
    assert [row.frame is None for row in grouping.group(contents.contributors, "file", "blocks")] == [False, True]
    assert "most at (before start)" in repr(contents)


def test_a_name_that_is_nowhere_is_said(tmp_path: Path) -> None:
    report = stacked.trained(tmp_path, called=True)
    assert "count as" not in text.render(views.heading(report))
    for code, said in (
        (("trainers",), "  lines of trainers count as the user's"),
        (("trainers", "x"), "  lines of trainers, x count as the user's (the peak has none of x)"),
    ):
        assert said in text.render(views.heading(replace(report, code=code))).splitlines()


def test_what_stands_for_outer_calls_has_no_file(tmp_path: Path) -> None:
    assert json.frame(Frame("", "...", -1))["file"] is None and json.frame(Frame("", "f", 1))["file"] == ""
