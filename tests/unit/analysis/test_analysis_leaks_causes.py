"""What has one cause is one entry, and what is too small to matter is none."""

from collections.abc import Callable
from typing import Any

import pytest
from leak_program import KEEP, NODE_BYTES, Program, Row, cat, forward, line_of, only, quiet, reasons, train

FILLING = 9  # cm_mark_kind
Verdicts = Callable[..., dict[str, Any]]


def under(report: dict[str, Any], row: Row) -> list[tuple[int, str]]:
    return [(line_of(report, kept), kept["relation"]) for kept in row["keeps"]]


# --- a kept graph --------------------------------------------------------------------------------------------------


def test_a_graph_that_no_backward_ran_and_what_it_holds(verdicts: Verdicts) -> None:
    """Lines that made its nodes, and a batch that is kept in the same steps."""

    def body(p: Program, i: int) -> None:
        p.new(64, 49)  # the batch, on a line without nodes
        for line in (50, 51):
            p.new(1000, line)
            p.node(line)
        p.node(52)

    report = verdicts(train(40, body))
    row = only(report, 52)
    assert (row["kind"], row["count_per_step"]) == ("nodes", 3.0)
    same, retained = "made in the same steps", "retained by the graph"
    assert under(report, row) == [(50, retained), (51, retained), (49, same)]
    assert row["total_bytes_per_step"] == 3 * NODE_BYTES + 2064 and not report["suspects"]


@pytest.mark.parametrize("every", [2, 4, 20])
def test_a_graph_of_an_epoch_stands_at_its_losses(verdicts: Verdicts, every: int) -> None:
    """The mean of losses, on line 60, is the youngest node of an epoch's last step, and keeps what all steps made."""

    def body(p: Program, i: int) -> None:
        p.new(1000, 50)
        p.node(50)
        p.node(52)
        if i % every == every - 1:
            p.node(60)

    report = verdicts(train(40, body))
    row = only(report, 52)
    assert row["kind"] == "nodes" and under(report, row) == [(50, "retained by the graph")]
    assert row["count"] == 80 + 40 // every


def test_a_graph_that_a_backward_ran_holds_no_inputs(verdicts: Verdicts) -> None:
    """What is kept beside it is a leak of its own, an output that was detached too; the loss itself is not."""

    def body(p: Program, i: int) -> None:
        p.new(2000, 50)
        forward(p, keep=True)
        p.new(4, 52)
        p.new(1000)

        p.new(4, 51)

    report = verdicts(train(40, body))
    found = [(row["kind"], line_of(report, row)) for row in report["leaks"]]
    assert found == [("nodes", 52), ("bytes", 50), ("bytes", KEEP)]
    assert sorted(under(report, report["leaks"][0])) == [(51, "retained by the graph"), (52, "retained by the graph")]


def test_a_metric_with_a_graph_behind_the_backward(verdicts: Verdicts) -> None:
    """Its own nodes, which no backward ran, hold what they saved, however many others were run."""

    def body(p: Program, i: int) -> None:
        forward(p, keep=True)
        p.new(2000, 51)
        p.new(1000, 55)
        p.node(55)
        p.new(4, 56)
        p.node(56)

    report = verdicts(train(40, body))
    graph, bytes_ = report["leaks"]
    assert (graph["kind"], line_of(report, graph), line_of(report, bytes_)) == ("nodes", 56, 51)
    assert sorted(under(report, graph)) == [(55, "retained by the graph"), (56, "retained by the graph")]


def test_what_is_kept_in_other_steps_is_another_leak(verdicts: Verdicts) -> None:
    def body(p: Program, i: int) -> None:
        p.node(50)
        if i % 3 == 0:
            p.new(1000)

    assert [row["kind"] for row in verdicts(train(60, body))["leaks"]] == ["nodes", "bytes"]


def test_a_sure_row_stands_under_no_suspect(verdicts: Verdicts) -> None:
    """The graph is garbage that waits, the list is held."""
    p = train(40, lambda p, i: p.kept.append((p.new(1000, 50), p.node(50))))
    p.collect_at_the_end([], nodes=tuple(node for _, node in p.kept))
    report = verdicts(p)
    assert [row["kind"] for row in report["leaks"]] == ["bytes"] and reasons(report) == [(50, "garbage")]


# --- growing sets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["queue", "logits"])
def test_what_is_computed_from_a_growing_set(verdicts: Verdicts, first: str) -> None:
    """queue = torch.cat([queue, k]), and logits = q @ queue.T before it or behind it."""
    p = Program()
    queue, logits = [p.new(500, KEEP)], [p.new(50, 60)]

    def grow(held: list[int], size: int, line: int) -> None:
        fresh = p.new(size, line)
        p.drop(held.pop())
        held.append(fresh)

    for i in range(60):
        p.work()
        if first == "queue":
            grow(queue, 500 + 100 * (i + 1), KEEP)
            grow(logits, (500 + 100 * (i + 1)) // 2, 60)
        else:
            grow(logits, (500 + 100 * i) // 2, 60)
            grow(queue, 500 + 100 * (i + 1), KEEP)
        p.tick()
    report = verdicts(p)
    row = only(report)
    assert under(report, row) == [(60, "grows with it")]
    assert row["total_bytes_per_step"] == pytest.approx(150, rel=0.05)


def test_what_is_made_of_a_list_that_grows(verdicts: Verdicts) -> None:
    """torch.cat(kept) is larger in every step because the list is."""
    joined: list[int] = []

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new(100))
        joined.append(p.new(100 * (i + 1), 60))
        if len(joined) > 1:
            p.drop(joined.pop(0))

    report = verdicts(train(60, body))
    assert under(report, only(report)) == [(60, "grows with it")]


def test_two_sets_that_grow_at_their_own_pace(verdicts: Verdicts) -> None:
    other = Program()

    def body(p: Program, i: int) -> None:
        cat(p, 100 * (i + 1))
        other.kept.append(p.new(2000 + 7 * (i + 1), 60))
        if len(other.kept) > 1:
            p.drop(other.kept.pop(0))

    report = verdicts(train(60, body))
    assert all(not row["keeps"] for row in report["leaks"]) and line_of(report, report["leaks"][0]) == KEEP


# --- small things --------------------------------------------------------------------------------------------------


def test_a_scalar_a_step_is_negligible(verdicts: Verdicts) -> None:
    def program(size: int, steps: int = 40) -> Program:
        p = train(steps, lambda p, i: p.kept.append(p.new(size)))
        p.drop(p.new(1_000_000, 70))  # the peak
        return p

    report = verdicts(program(4), min_rate=-1)
    assert not report["leaks"] and reasons(report) == [(KEEP, "negligible")]
    assert only(verdicts(program(4), min_rate=0))["bytes_per_step"] == 4
    assert only(verdicts(program(1024), min_rate=-1))["bytes_per_step"] == 1024  # 1 KiB a step
    assert only(verdicts(program(512), min_rate=-1))["bytes"] == 512 * 40  # 2 % of the peak
    assert reasons(verdicts(program(2000), min_rate=2001)) == [(KEEP, "negligible")]
    assert only(verdicts(program(2000), min_rate=2000))


def test_a_graph_is_never_negligible_by_itself(verdicts: Verdicts) -> None:
    def body(p: Program, i: int) -> None:
        if i % 3 == 0:
            forward(p, keep=True, lines=(50,))
        p.drop(p.new(10_000_000, 70))

    assert only(verdicts(train(60, body), min_rate=-1), 50)["bytes_per_step"] < 1024
    assert quiet(verdicts(train(60, body), min_rate=2000)) is False
    assert reasons(verdicts(train(60, body), min_rate=2000)) == [(50, "negligible")]


# --- containers with a bound ---------------------------------------------------------------------------------------


def look(p: Program, blocks: list[int]) -> None:
    p.t.mark(FILLING, 0)
    for address in blocks:
        p.t.mark(FILLING, address)


@pytest.mark.parametrize("at", [20, 39, None])
def test_a_buffer_that_is_not_full(verdicts: Verdicts, at: int | None) -> None:
    """Looked at in the middle of the loop, at its last step, or only behind it."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == at:
            look(p, p.kept)

    p = train(40, body)
    if at is None:
        look(p, p.kept)
    for address in p.kept:  # the function returns
        p.drop(address)
    look(p, [])
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "filling")]


def test_a_list_that_has_left_every_buffer(verdicts: Verdicts) -> None:
    """A buffer held the first ones; later on only few of them are in it."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == 10:
            look(p, p.kept)
        if i == 30:
            look(p, p.kept[-4:])

    assert only(verdicts(train(40, body)))["count"] == 40


def test_another_devices_block_at_the_same_address(verdicts: Verdicts) -> None:
    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == 30:
            look(p, [address + 8 for address in p.kept])

    assert only(verdicts(train(40, body)))


# --- what is not one cause -----------------------------------------------------------------------------------------


def test_a_larger_leak_stands_under_no_smaller_one(verdicts: Verdicts) -> None:
    """losses.append(loss.detach()) and queue = torch.cat([queue, ...]): equal ages prove nothing."""
    other: list[int] = []

    def body(p: Program, i: int) -> None:
        other.append(p.new(4, 60))
        cat(p, 16_000 * (i + 1))
        p.drop(p.new(10_000_000, 70))

    report = verdicts(train(60, body), min_rate=-1)
    assert only(report)["keeps"] == [] and reasons(report) == [(60, "negligible")]


def test_a_cache_beside_a_small_graph_is_a_leak_of_its_own(verdicts: Verdicts) -> None:
    def body(p: Program, i: int) -> None:
        p.new(400_000)
        p.node(50)

    report = verdicts(train(40, body))
    assert [line_of(report, row) for row in report["leaks"]] == [KEEP, 50]


def test_small_leaks_of_many_lines_are_not_negligible(verdicts: Verdicts) -> None:
    def body(p: Program, i: int, lines: int) -> None:
        for line in range(lines):
            p.new(256, KEEP + line)
        p.drop(p.new(10_000_000, 70))

    for lines in (3, 5):
        report = verdicts(train(40, lambda p, i, n=lines: body(p, i, n)), min_rate=-1)
        assert len(report["leaks"]) == (lines if lines == 5 else 0)
        assert len(report["suspects"]) == (0 if lines == 5 else lines)
