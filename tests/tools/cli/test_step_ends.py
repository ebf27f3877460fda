"""What is said of the live bytes at a loop's step ends."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import cuptimem
from cuptimem.output.text import step_ends
from cuptimem.report.leaks import made_behind
from cuptimem.report.model import ClockChange, Step, Steps
from tests.tools.cli import sample


@pytest.fixture
def report(tmp_path: Path) -> cuptimem.Report:
    return cuptimem.report.load.from_dict("run.cmem", sample.analysis(tmp_path))


def told(report: cuptimem.Report, rows: Sequence[Step], loop: str = "training") -> str:
    """Of the loop's steps."""
    kind = "optimizer" if rows[-1].loop == "training" else "module"
    clock = replace(report.clock, changes=(ClockChange(1, kind, None, rows[-1].loop),))
    followers = step_ends.followers(replace(report, clock=clock, steps=Steps(rows)), rows)
    return step_ends.growth([row for row in rows if row.loop == loop], followers)


def rows_of(report: cuptimem.Report, ends: Sequence[tuple[str, int]]) -> list[Step]:
    loops = {"T": "training", "E": "evaluation"}
    return [replace(report.steps[0], index=i, loop=loops[loop], end=end) for i, (loop, end) in enumerate(ends)]


def test_a_single_jump_is_no_growth_per_step(report: cuptimem.Report) -> None:
    rows = rows_of(report, [("T", 100 if i < 6 else 230) for i in range(12)])
    assert told(report, rows).endswith("100 B (step 2) to 230 B (step 11), +130 B in 9 steps")


def test_what_comes_between_is_not_the_loops_growth(report: cuptimem.Report) -> None:
    """An evaluation after every fourth step that keeps 1,000 B; the training itself keeps 7 B a step."""
    ends = [(loop, 7 * (4 * i + k) + 1000 * i) for i in range(6) for k, loop in enumerate("TTTTE")]
    assert told(report, rows_of(report, ends[:-1])).endswith("(step 28), +7 B a step")


def test_gradients_between_do_not_make_an_evaluation_grow(report: cuptimem.Report) -> None:
    """It runs before the first update and after each epoch; the next epoch's first line drops the gradients."""
    parts = [(100, 100, 100, 100), (400, 400, 400, 300), (400, 400, 400, 300), (400, 400, 400, 400)]
    ends = [("E", end) for end in parts[0]]
    for part in parts[1:]:
        ends += [("T", 700), *(("E", end) for end in part)]
    said = told(report, rows_of(report, ends), "evaluation")
    assert said.endswith("100 B (step 2) to 400 B (step 17), steady while the loop runs")


@pytest.mark.parametrize(("kept", "words"), [(0, " while the loop runs, freed before it runs again"), (200, "")])
def test_what_is_given_back_between_two_runs(report: cuptimem.Report, kept: int, words: str) -> None:
    """A metric that is reset after each evaluation, and one that is not."""
    ends = [
        row for i in range(6) for row in [("T", 900 + kept * i)] * 3 + [("E", 100 * k + kept * i) for k in range(4)]
    ]
    said = told(report, rows_of(report, ends), "evaluation")
    assert said.endswith(f"+100 B a step{words}")


@pytest.mark.parametrize("ends", [[100 * i for i in range(7)], [100 * (i % 6) + i for i in range(24)]])
def test_few_steps_and_what_goes_up_and_down_have_no_rate(report: cuptimem.Report, ends: list[int]) -> None:
    said = told(report, rows_of(report, [("T", end) for end in ends]))
    assert "a step" not in said and said.endswith(" steps")


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_step_before_an_evaluation_ends_elsewhere(report: cuptimem.Report, evaluated: bool) -> None:
    """It keeps 100 B a step, and its gradients of 900 B are dropped behind the update."""
    ends = []
    for i in range(40):
        before = i % 10 == 9 and (evaluated or i < 39)
        ends.append(("T", 100 * i + (0 if before else 900)))
        ends += [("E", 100 * i)] * 3 * before
    said = told(report, rows_of(report, ends))
    last = "4.6 KiB (step 47)" if evaluated else "4.7 KiB (step 48)"
    assert said.endswith(f" 1.5 KiB (step 6) to {last}, +100 B a step")


def test_where_each_step_precedes_an_evaluation_all_end_alike(report: cuptimem.Report) -> None:
    """What the evaluation keeps cannot be told apart: no rate."""
    said = told(report, rows_of(report, [(loop, 50 * i) for i in range(20) for loop in "TE"]))
    assert said == "live at step ends 150 B (step 6) to 950 B (step 38), +800 B in 16 steps"


def test_ends_that_are_not_alike_have_no_difference(report: cuptimem.Report) -> None:
    said = told(report, rows_of(report, [("T", 900), ("T", 100), ("E", 100)]))
    assert said == "live at step ends 900 B (step 0) to 100 B (step 1)"
    assert told(report, rows_of(report, [("T", 100), ("E", 100)])) == "100 B live at its end"


def test_what_the_clock_counts_to_the_ended_step_is_not_moved_again() -> None:
    clock = {"kind": "optimizer", "where": ("/p/train.py", 7, "main")}
    stack = (cuptimem.Frame("/p/train.py", "main", 9),)
    assert [made_behind(stack, {**clock, "trailed": trailed}) for trailed in (False, True)] == [True, False]
