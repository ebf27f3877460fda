"""Verdicts on graph nodes that are kept."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from leak_program import KEEP, NODE_BYTES, Program, forward, line_of, only, quiet, reasons, train

from tests.event_kinds import SAMPLE


@pytest.mark.parametrize("behind", [False, True])
def test_a_running_sum_of_losses(verdicts: Callable[..., dict[str, Any]], behind: bool) -> None:
    """total = total + loss, before the optimizer's step or behind it: then it lies in the next step."""
    p = Program()
    for _ in range(40):
        p.work()
        p.kept += forward(p, keep=True)
        if behind:
            p.tick()
        p.kept.append(p.node(KEEP))
        if not behind:
            p.tick()
    report = verdicts(p)
    (row,) = report["leaks"]
    assert (row["kind"], row["device"], line_of(report, row, "retained")) == ("nodes", "cpu", KEEP)
    assert row["count_per_step"] == 4.0 and row["bytes_per_step"] == 4.0 * NODE_BYTES
    # Behind the step: the first has no sum yet, the last is in no step.
    assert row["count"] == (156 if behind else 160) and row["bytes"] == row["count"] * NODE_BYTES
    assert {line_of(report, {"stack": part[2]}) for part in row["parts"]} == {50, 51, 52, KEEP}
    assert row["confidence"] == "high" and report["live_nodes"] == 160 - behind


def test_ties_go_to_the_retaining_line(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.extend([p.node(50), p.node(KEEP)]))
    only(verdicts(p))


def test_outputs_that_are_kept(verdicts: Callable[..., dict[str, Any]]) -> None:
    """All of their nodes ran: the line is that of the last."""

    def body(p: Program, i: int) -> None:
        forward(p, keep=True)
        forward(p, keep=False, lines=(60, 61))  # the loss on top of it dies

    report = verdicts(train(40, body))
    (row,) = report["leaks"]
    assert line_of(report, row, "retained") == 52 and row["count_per_step"] == 3.0


def test_two_retaining_lines(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        forward(p, keep=True)
        p.node(KEEP + i % 2)

    report = verdicts(train(60, body))
    assert sorted((line_of(report, row, "retained"), row["count_per_step"]) for row in report["leaks"]) == [
        (KEEP, 2.0),
        (KEEP + 1, 2.0),
    ]


def test_retained_from_many_depths_of_one_line(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        forward(p, keep=True)
        p.node(stack=p.t.stack(*[("tree.py", "walk", KEEP)] * (1 + i % 9), ("train.py", "main", 9)))

    report = verdicts(train(54, body))
    (row,) = report["leaks"]
    assert row["count_per_step"] == 4.0 and line_of(report, row, "retained") == KEEP


@pytest.mark.parametrize("length", [1, 4, 20, 35])
def test_a_queue_of_graphs(verdicts: Callable[..., dict[str, Any]], length: int) -> None:
    queue: deque[list[int]] = deque()

    def body(p: Program, i: int) -> None:
        queue.append([*forward(p, keep=True), p.node(KEEP)])
        if len(queue) > length:
            for node in queue.popleft():
                p.end(node)

    assert quiet(verdicts(train(48, body)))


def test_a_graph_that_lives_into_the_next_step(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        for node in p.kept:
            p.end(node)
        p.kept = forward(p, keep=True)

    report = verdicts(train(40, body))
    assert quiet(report) and report["live_nodes"] == 3


def test_node_garbage_and_node_cycles(verdicts: Callable[..., dict[str, Any]]) -> None:
    for enabled in (True, False):
        p = train(40, lambda p, i: p.kept.append(p.node(KEEP)))
        p.collect_at_the_end([], enabled=enabled, nodes=tuple(p.kept))
        report = verdicts(p)
        if enabled:
            assert not report["leaks"] and reasons(report) == [(KEEP, "garbage")]
        else:
            assert only(report)["cause"] == "cycle"


def test_nodes_that_nobody_sees_die_are_not_counted(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.node(KEEP))
    assert len(verdicts(p)["leaks"]) == 1
    assert quiet(verdicts(p, nodes="not available: torch 1.0"))


@pytest.mark.parametrize(("each", "said"), [(650, 650), (1400, 1400), (50_000, 1500), (100, 500)])
def test_what_a_node_takes_is_measured_by_what_malloc_has_given_out(
    verdicts: Callable[..., dict[str, Any]], each: int, said: int
) -> None:
    p = Program()
    for _ in range(100):
        p.work()
        p.kept += forward(p, keep=True)
        p.tick()
        p.t.add(SAMPLE, 3, (1 << 30) + each * len(p.kept), thread=0)
    (row,) = verdicts(p)["leaks"]
    assert row["bytes"] == row["count"] * said and row["bytes_per_step"] == 3.0 * said


@pytest.mark.parametrize("steps", [100, 700])
def test_what_grows_once_is_of_no_node(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    """A library's state, built behind the warm-up; of many samples some stay."""
    p = Program()
    for step in range(steps):
        p.work()
        p.kept += forward(p, keep=True)
        p.tick()
        p.t.add(SAMPLE, 3, (1 << 30) + 900 * len(p.kept) + 100_000 * (step > steps / 5), thread=0)
    (row,) = verdicts(p)["leaks"]
    assert row["bytes_per_step"] == 3.0 * 900


@pytest.mark.parametrize(("samples", "said"), [(4, 1200), (3, 800)])
def test_a_short_loop_has_few_samples(verdicts: Callable[..., dict[str, Any]], samples: int, said: int) -> None:
    """Of a process that has much in malloc's lists it is asked twice a second."""
    p = Program()
    for step in range(400):
        p.work()
        p.kept += forward(p, keep=True)
        p.tick()
        if step >= 40 and step % 90 == 50 and step < 50 + 90 * samples:
            p.t.add(SAMPLE, 3, (1 << 30) + 1200 * len(p.kept), thread=0)
    (row,) = verdicts(p)["leaks"]
    assert row["bytes_per_step"] == 3.0 * said


@pytest.mark.parametrize(("first", "said"), [(11, 1200), (10, 800)])
def test_a_sample_of_the_warm_up_does_not_count(verdicts: Callable[..., dict[str, Any]], first: int, said: int) -> None:
    """Of the four that are needed the first comes at the end of a tenth of the steps, or before."""
    p = Program()
    for step in range(110):
        p.work()
        p.kept += forward(p, keep=True)
        if step in (first, 40, 70, 100):
            p.t.add(SAMPLE, 3, (1 << 30) + 1200 * len(p.kept), thread=0)
        p.tick()
    (row,) = verdicts(p)["leaks"]
    assert row["bytes_per_step"] == 3.0 * said
