"""Garbage that waits for its collection is no leak; what a collection leaves is one."""

from collections.abc import Callable
from typing import Any

import pytest
from leak_program import COLLECT_BEGIN, COLLECT_END, FINAL_BEGIN, FINAL_END, KEEP, Program, only, reasons, train

NAMED = 13  # cm_mark_kind


def test_garbage_that_waits(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append(p.new()))
    assert only(verdicts(p))  # without a collection it looks like a leak
    p.collect_at_the_end(p.kept)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "garbage")]


def test_what_the_collection_leaves_is_a_leak(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append((p.new(1000), p.new(10))))
    p.collect_at_the_end([large for large, _ in p.kept])
    row = only(verdicts(p))
    assert (row["bytes"], row["count"], row["bytes_per_step"], row["cause"]) == (400, 40, 10.0, "")


@pytest.mark.parametrize(("full", "leaks"), [(400, False), (6, True)])
def test_a_buffer_that_was_full_before_the_first_step(
    verdicts: Callable[..., dict[str, Any]], full: int, leaks: bool
) -> None:
    """What the steps put in takes the place of what set-up had put in, on another stack of the same line."""
    p = Program(reuse=False)
    ring = [p.new(stack=p.t.stack(("train.py", "main", KEEP), ("train.py", "fill", 5))) for _ in range(full)]

    def body(p: Program, i: int) -> None:
        if ring:
            p.drop(ring.pop(0))
        p.kept.append(p.new(stack=p.t.stack(("train.py", "main", KEEP), ("train.py", "step", 6))))

    for i in range(40):
        body(p, i)
        p.work()
        p.tick()
    assert bool(verdicts(p)["leaks"]) == leaks


def test_cycles_with_the_collector_off(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append(p.new()))
    p.collect_at_the_end(p.kept, enabled=False)
    row = only(verdicts(p))
    assert (row["cause"], row["bytes"], row["bytes_per_step"], row["confidence"]) == ("cycle", 40_000, 1000.0, "high")


@pytest.mark.parametrize(("when", "leaks"), [(5, True), (20, True), (35, False)])
def test_a_program_that_collects_by_itself(verdicts: Callable[..., dict[str, Any]], when: int, leaks: bool) -> None:
    """The collector is off, gc.collect() is called once: what came before is gone then."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == when:
            p.t.mark(COLLECT_BEGIN, 2)
            for address in p.kept:
                p.drop(address)
            p.kept = []
            p.t.mark(COLLECT_END, 2)

    p = train(60 if leaks else 40, body)
    p.collect_at_the_end(p.kept, enabled=False)
    assert [row["cause"] for row in verdicts(p)["leaks"]] == ["cycle"] * leaks


@pytest.mark.parametrize(("generation", "steps"), [(2, 35), (1, 35), (1, 28)])
def test_a_program_that_collects_every_20_steps(
    verdicts: Callable[..., dict[str, Any]], generation: int, steps: int
) -> None:
    """The collector is off; what waits for the next collection is no leak, of whatever generation that is."""

    def body(p: Program, i: int) -> None:
        if i == 20:
            p.t.mark(COLLECT_BEGIN, generation)
            for address in p.kept:
                p.drop(address)
            p.kept = []
            p.t.mark(COLLECT_END, generation)
        p.kept.append(p.new())

    p = train(steps, body)
    p.collect_at_the_end(p.kept, enabled=False)
    assert not verdicts(p)["leaks"]


def test_what_survived_a_full_collection_was_no_garbage(verdicts: Callable[..., dict[str, Any]]) -> None:
    """A list whose owner is part of a cycle and dies with the function: it was a leak while the loop ran."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == 38:
            p.t.mark(COLLECT_BEGIN, 2)
            p.t.mark(COLLECT_END, 2)

    p = train(40, body)
    p.collect_at_the_end(p.kept)
    assert only(verdicts(p))["count"] == 38


def test_an_address_used_again_behind_the_boundary_is_another_block(verdicts: Callable[..., dict[str, Any]]) -> None:
    """What is made and collected behind the last step has nothing to do with the survivors there."""
    p = train(40, lambda p, i: p.kept.append(p.new()))
    for address in p.kept:
        p.drop(address)
    p.collect_at_the_end([p.new() for _ in range(40)])
    assert only(verdicts(p))["count"] == 40


# --- whose collection, and when ------------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_any_collection_behind_the_loop_tells_garbage(verdicts: Callable[..., dict[str, Any]], generation: int) -> None:
    p = train(40, lambda p, i: p.kept.append(p.new()))
    p.t.mark(COLLECT_BEGIN, generation)
    for address in p.kept:
        p.drop(address)
    p.t.mark(COLLECT_END, generation)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "garbage")]


def test_what_another_thread_drops_meanwhile_is_not_collected(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.kept.append(p.new()))
    p.t.mark(COLLECT_BEGIN, 0)
    for address in p.kept:
        p.t.free(address, thread=2)
    p.t.mark(COLLECT_END, 0)
    assert only(verdicts(p))["count"] == 40


def test_without_a_collection_nothing_is_certain(verdicts: Callable[..., dict[str, Any]]) -> None:
    """A report in the middle of a run, or after a kill."""
    p = train(40, lambda p, i: p.kept.append(p.new()))
    report = verdicts(p, collect=False)
    assert not report["leaks"] and reasons(report) == [(KEEP, "no collection")]
    assert only(verdicts(p))


@pytest.mark.parametrize(("at", "sure"), [(5, False), (25, True), (39, True)])
def test_a_full_collection_in_the_loop_vouches_for_what_it_left(
    verdicts: Callable[..., dict[str, Any]], at: int, sure: bool
) -> None:
    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i == at:
            p.t.mark(COLLECT_BEGIN, 2)
            p.t.mark(COLLECT_END, 2)

    report = verdicts(train(40, body), collect=False)
    assert bool(report["leaks"]) == sure and bool(report["suspects"]) != sure


def windows(p: Program, i: int, every: int) -> None:
    """Inner profiles that end: each finds what is garbage by then, some of it blocks and some of it nodes."""
    p.kept.append((p.new(), p.node(KEEP)))
    if i % every == every - 1:
        p.t.mark(FINAL_BEGIN, 1)
        for address, node in p.kept:
            p.drop(address)
            p.end(node)
        p.kept = []
        p.t.mark(FINAL_END)


@pytest.mark.parametrize("enabled", [True, False])
def test_our_own_collections_change_no_verdict(verdicts: Callable[..., dict[str, Any]], enabled: bool) -> None:
    """The same loop alone, and with a window inside it that collects every ten steps."""
    seen = []
    for every in (1000, 10, 4):
        p = train(60, lambda p, i, every=every: windows(p, i, every))
        p.collect_at_the_end([a for a, _ in p.kept], enabled=enabled, nodes=tuple(n for _, n in p.kept))
        report = verdicts(p)
        rows = report["leaks"] + report["suspects"]
        rows += [kept for row in rows for kept in row["keeps"]]
        seen.append(
            sorted((row["kind"], row["reason"], row["cause"], row["bytes"], row["bytes_per_step"]) for row in rows)
        )
    assert seen[0] == seen[1] == seen[2]
    assert {(kind, reason) for kind, reason, *_ in seen[0]} == (
        {("bytes", "garbage"), ("nodes", "garbage")} if enabled else {("bytes", ""), ("nodes", "")}
    )


def test_the_programs_own_collection_ends_what_ours_found(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        windows(p, i, 10)
        if i == 50:
            p.t.mark(COLLECT_BEGIN, 2)
            p.t.mark(COLLECT_END, 2)

    p = train(54, body)
    p.collect_at_the_end([a for a, _ in p.kept], nodes=tuple(n for _, n in p.kept))
    assert not verdicts(p)["leaks"] and "garbage" not in {reason for _, reason in reasons(verdicts(p))}


# --- garbage, or held until its owner went -------------------------------------------------------------------------


def test_what_dies_behind_its_function_may_have_been_held(verdicts: Callable[..., dict[str, Any]]) -> None:
    """A list of an object in a cycle, as a trainer and its callback are, dies in the collection at the end, too."""
    p = train(40, lambda p, i: p.kept.append(p.new()))
    p.collect_at_the_end(p.kept, in_frame=False)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "late garbage")]


@pytest.mark.parametrize("nodes", [False, True])
@pytest.mark.parametrize("in_frame", [False, True])
def test_names_that_a_search_in_the_loop_found(
    verdicts: Callable[..., dict[str, Any]], nodes: bool, in_frame: bool
) -> None:
    """The function returns, and what it held is part of a cycle: exceptions with their tracebacks. While it still runs
    the collection frees what nothing holds any more, whatever was so before."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.node(KEEP) if nodes else p.new())
        if i == 23:
            p.t.mark(NAMED, p.t.line(KEEP))

    p = train(40, body)
    freed: dict[str, Any] = {"nodes": tuple(p.kept)} if nodes else {}
    p.collect_at_the_end([] if nodes else p.kept, in_frame=in_frame, **freed)
    report = verdicts(p)
    if in_frame:
        assert not report["leaks"] and reasons(report) == [(KEEP, "garbage")]
    else:
        only(report)


@pytest.mark.parametrize(("generation", "every", "times"), [(0, 8, 5), (1, 1, 36), (2, 8, 5)])
def test_collections_in_the_loop_vouch_for_what_they_left(
    verdicts: Callable[..., dict[str, Any]], generation: int, every: int, times: int
) -> None:
    def body(p: Program, i: int) -> None:
        p.kept.append((p.new(), p.node(KEEP)))
        if i % every == 0 and i > 0:
            p.t.mark(COLLECT_BEGIN, generation)
            p.t.mark(COLLECT_END, generation)

    p = train(48, body)
    p.collect_at_the_end([a for a, _ in p.kept], nodes=tuple(n for _, n in p.kept), in_frame=False)
    row = only(verdicts(p))
    assert (row["kind"], row["count"], [kept["count"] for kept in row["keeps"]]) == ("nodes", 48, [48])
    report = verdicts(p, collect=False)  # and after a kill
    assert len(report["leaks"]) == 1


@pytest.mark.parametrize(("every", "reason"), [(24, "late garbage"), (1, "late garbage")])
def test_too_few_collections_and_too_dense_young_ones_do_not(
    verdicts: Callable[..., dict[str, Any]], every: int, reason: str
) -> None:
    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i % every == 0:
            p.t.mark(COLLECT_BEGIN, 0)
            p.t.mark(COLLECT_END, 0)

    p = train(48, body)
    p.collect_at_the_end(p.kept, in_frame=False)
    assert reasons(verdicts(p)) == [(KEEP, reason)]


def test_a_group_of_which_collections_found_some_is_garbage(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i % 8 == 7 and i < 30:
            p.t.mark(COLLECT_BEGIN, 0)
            for address in p.kept:
                p.drop(address)
            p.kept = []
            p.t.mark(COLLECT_END, 0)

    p = train(48, body)
    p.collect_at_the_end(p.kept, in_frame=False)
    report = verdicts(p)
    assert not report["leaks"] and {reason for _, reason in reasons(report)} <= {"garbage", "few births"}


def test_a_lost_end_of_a_collection(verdicts: Callable[..., dict[str, Any]]) -> None:
    """The next collection begins another one; it does not lie within the first."""

    def body(p: Program, i: int) -> None:
        p.kept.append(p.new())
        if i in (10, 20):
            p.t.mark(COLLECT_BEGIN, 0)
        if i == 20:
            p.t.mark(COLLECT_END, 0)

    p = train(40, body)
    for address in p.kept:
        p.drop(address)
    assert only(verdicts(p))["count"] == 40
