"""Predicted peaks beside those of the program with the change made by hand, recorded on the CPU."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem import advice
from cuptimem.cli import main
from cuptimem.report.model import Report

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("only_new_objects")]

Record = Callable[..., Report]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    made: dict[object, Report] = {}

    def go(kind: str, batch: int, change: str = "", **more: bool) -> Report:
        key = kind, batch, change, tuple(more.items())
        if key not in made:
            from tests.tools.advice import trainings

            made[key] = trainings.record(tmp_path_factory.mktemp("advice"), kind, batch, change, **more)
        return made[key]

    return go


# Kind, batch, technique, its value, error of the predicted peak.
CASES = [
    ("words", 8, "zero_grad_late", True, 0),
    ("words", 1, "zero_grad_late", True, 0),
    ("pictures", 4, "zero_grad_late", True, 0),
    ("words", 8, "checkpoint", True, 0.05),
    ("words", 1, "checkpoint", True, 0.05),
    ("pictures", 4, "checkpoint", True, 0.05),
    ("views", 16, "checkpoint", True, 0.1),
    ("words", 8, "sgd", True, 0),
    ("words", 1, "sgd", True, 0),
    ("pictures", 4, "sgd", True, 0),
    ("words", 8, "fused", True, 0.001),
    ("words", 1, "fused", True, 0.001),
    ("words", 8, "step_in_backward", True, 0.05),
    ("pictures", 4, "step_in_backward", True, 0.05),
    ("pictures", 4, "in_place", True, 0),
    ("words", 8, "accumulate", True, 0.05),
    ("pictures", 4, "accumulate", True, 0.05),
    ("attending", 2, "accumulate", True, 0.05),
    ("attending", 2, "fused_attention", True, 0.05),
    ("attending", 6, "fused_attention", True, 0.1),  # the kernel has buffers of its own
]


# Parameters make the peak of one batch, activations that of eight. The same technique has the other one in CASES.
EXTENDED = (("words", 1, "zero_grad_late"), ("words", 1, "checkpoint"), ("words", 8, "sgd"), ("words", 8, "fused"))


UNREAD = ("in_place",)  # which no recording proposes


@pytest.mark.parametrize(
    ("kind", "batch", "technique", "value", "error"),
    [pytest.param(*case, marks=[pytest.mark.extended] * (case[:3] in EXTENDED)) for case in CASES],
)
def test_as_the_change_by_hand(
    record: Record, kind: str, batch: int, technique: str, value: object, error: float
) -> None:
    before, after = record(kind, batch), record(kind, batch, technique)
    predicted = advice.estimate(before, None, **{technique: value}).bytes
    assert abs(predicted - after.peak.bytes) <= error * after.peak.bytes
    proposal = before.advice.proposal(technique)
    is_enough = before.peak.bytes - predicted >= advice.LEAST * before.peak.bytes
    assert (proposal is not None) == (is_enough and technique not in UNREAD)


@pytest.mark.parametrize(("kind", "few", "many"), [("words", 8, 32), ("pictures", 4, 8), ("attending", 2, 6)])
def test_a_larger_batch(record: Record, kind: str, few: int, many: int) -> None:
    before, after = record(kind, few), record(kind, many)
    predicted = advice.estimate(before, batch=f"{many}:{few}").bytes
    assert abs(predicted - after.peak.bytes) <= 0.03 * after.peak.bytes


def test_what_a_data_set_keeps_follows_no_batch(tmp_path: Path) -> None:
    from tests.tools.advice import trainings

    before, after = (trainings.record_decoded(tmp_path, batch) for batch in (16, 8))
    predicted = advice.estimate(before, batch="8:16").bytes
    assert abs(predicted - after.peak.bytes) <= 0.03 * after.peak.bytes
    kept = 64 * 3 * 24 * 24 * 4
    assert advice.estimate(before, half_model=True).bytes > kept


def test_cycles_that_no_collection_frees(tmp_path: Path) -> None:
    from tests.tools.advice import trainings

    before, after = (trainings.record_cycles(tmp_path, collected) for collected in (False, True))
    found = before.advice.proposal("collect")
    assert found is not None
    assert found.bytes < before.peak.bytes / 3
    # In the changed program the last step's cycle is alive while the next step runs until its collection.
    step = 64 * 64 * 4
    assert abs(found.bytes - after.peak.bytes) <= 2 * step


def test_gradients_that_are_zeroed_in_place(record: Record) -> None:
    before, after = record("words", 1, zeroed=True), record("words", 1, "set_to_none")
    found = before.advice.proposal("set_to_none")
    assert found is not None
    assert found.bytes == after.peak.bytes
    assert before.advice.proposal("zero_grad_late") is None


def test_no_change_is_the_recorded_peak(record: Record) -> None:
    for kind, batch in (("words", 8), ("pictures", 4), ("attending", 2)):
        report = record(kind, batch)
        assert advice.estimate(report).bytes == report.peak.bytes


def test_the_lines_are_those_to_change(record: Record) -> None:
    found = record("words", 8).advice
    lines = {one.technique: one.frame.source for one in found.proposals if one.frame is not None}
    assert lines["zero_grad_late"] == lines["sgd"] == "optimizer.step()"
    assert lines["checkpoint"].endswith("else block(x)")


def test_the_summary_has_the_best(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    report = record("words", 8)
    assert report.path is not None
    assert main(["summary", report.path]) == 0
    shown = capsys.readouterr().out
    best = min(report.advice.proposals, key=lambda one: one.bytes)
    assert f"What would lower it, each alone: {best.technique} " in shown
    assert "Next: cuptimem advice" in shown


def test_free_changes_come_first(record: Record) -> None:
    found = record("words", 8).advice.proposals
    assert [one.free for one in found] == sorted((one.free for one in found), reverse=True)
    assert all(one.saved >= advice.LEAST * record("words", 8).peak.bytes for one in found)
