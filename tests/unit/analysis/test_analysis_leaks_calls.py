"""What grows while one answer is generated, and goes with it, is no leak of the loop that generates."""

from collections.abc import Callable
from typing import Any

import pytest
from craft import MODULE
from leak_program import KEEP, Program, cat, only, quiet, reasons

CALL = 60  # the line that calls the model
AFTER = 90
HELD, EXIT = 12, 14  # cm_mark_kind
Verdicts = Callable[..., dict[str, Any]]


def answer(p: Program, tokens: int = 40, *, keep: bool = False) -> None:
    """A cache that a larger one replaces, or with keep a list of results."""
    for i in range(tokens):
        p.t.tick(MODULE, 0x55, p.t.line(CALL), flags=0x20)
        p.drop(p.new(500, CALL + 1))
        if keep:
            p.kept.append(p.new())
        else:
            cat(p, 1000 * (i + 4))


def drop_kept(p: Program) -> None:
    for address in p.kept:
        p.drop(address)
    p.kept = []


def model(p: Program) -> int:
    return p.new(50_000, 5)


@pytest.mark.parametrize("keep", [True, False])
def test_freed_while_the_model_stays(verdicts: Verdicts, keep: bool) -> None:
    p = Program()
    model(p)
    answer(p, keep=keep)
    drop_kept(p)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "freed behind the loop")]


@pytest.mark.parametrize("keep", [True, False])
def test_freed_and_the_program_went_on(verdicts: Verdicts, keep: bool) -> None:
    p = Program()
    weights = model(p)
    answer(p, keep=keep)
    drop_kept(p)
    p.new(100, AFTER)
    p.drop(weights)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, "freed behind the loop")]


@pytest.mark.parametrize("keep", [True, False])
def test_a_function_that_has_everything_returns(verdicts: Verdicts, keep: bool) -> None:
    """main() ends: that frees its leaks, too."""
    p = Program()
    weights = model(p)
    answer(p, keep=keep)
    drop_kept(p)
    p.drop(weights)
    only(verdicts(p))


def test_freed_by_an_exit_handler(verdicts: Verdicts) -> None:
    """logging.shutdown empties the buffers of handlers: the program itself never did."""
    p = Program()
    model(p)
    answer(p, keep=True)
    p.t.mark(EXIT)
    drop_kept(p)
    p.new(100, AFTER)
    only(verdicts(p))


@pytest.mark.parametrize("keep", [True, False])
def test_what_stays_is_a_leak(verdicts: Verdicts, keep: bool) -> None:
    p = Program()
    model(p)
    answer(p, keep=keep)
    p.new(100, AFTER)
    only(verdicts(p))


def others(p: Program, steps: int) -> None:
    """Steps of another evaluation, which keeps nothing."""
    for _ in range(steps):
        p.t.tick(MODULE, 0x56, p.t.line(CALL + 20), flags=0x20)
        p.drop(p.new(500, CALL + 21))


@pytest.mark.parametrize("at_exit", [False, True])
@pytest.mark.parametrize(("between", "reason"), [(10, "stopped"), (0, "one pass")])
def test_a_result_that_the_next_run_replaces(verdicts: Verdicts, between: int, reason: str, at_exit: bool) -> None:
    """A notebook's cell, `logits = [model(x) for x in batches]`, run twice: the new list replaces the old one. With
    nothing between, one run whose list is trimmed looks the same. at_exit: an exit handler does all the work."""
    p = Program()
    model(p)
    if at_exit:
        p.t.mark(EXIT)
    answer(p, keep=True)
    first, p.kept = p.kept, []
    others(p, between)
    answer(p, keep=True)
    for address in first:
        p.drop(address)
    report = verdicts(p)
    assert not report["leaks"] and reasons(report) == [(KEEP, reason)]


@pytest.mark.parametrize("between", [10, 0])
@pytest.mark.parametrize("trimmed", [20, 30, 60])
def test_a_list_that_is_trimmed_once_is_no_replaced_result(verdicts: Verdicts, between: int, trimmed: int) -> None:
    """del server.sessions[:30]"""
    p = Program()
    model(p)
    answer(p, keep=True)
    others(p, between)
    answer(p, 60, keep=True)
    for address in p.kept[:trimmed]:
        p.drop(address)
    report = verdicts(p)
    assert report["leaks"] or reasons(report) == [(KEEP, "one pass")]


@pytest.mark.parametrize(("runs", "dropped"), [(3, 40), (4, 80), (6, 80), (6, 100)])
def test_runs_that_are_kept_are_a_leak_also_without_the_oldest(verdicts: Verdicts, runs: int, dropped: int) -> None:
    p = Program()
    model(p)
    for _ in range(runs):
        answer(p, 40, keep=True)
        others(p, 10)
    for address in p.kept[:dropped]:
        p.drop(address)
    only(verdicts(p))


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("steps", [20, 300])
def test_what_one_pass_makes(verdicts: Verdicts, passes: int, steps: int) -> None:
    """An index, which queries read, or a server's list, before a health check. What each of several passes adds to goes
    on."""
    p = Program()
    model(p)
    for _ in range(passes):
        answer(p, steps, keep=True)
        others(p, 10)
    report = verdicts(p)
    if passes == 1:
        (row,) = report["suspects"]
        assert not report["leaks"] and row["reason"] == "one pass" and row["bytes_per_step"] == pytest.approx(1000)
    else:
        only(report)


def test_a_list_of_caches_is_a_leak(verdicts: Verdicts) -> None:
    p = Program()
    model(p)
    for _ in range(8):
        answer(p, 12)
        p.kept = []  # nothing frees the last one
    only(verdicts(p))


def test_caches_of_many_answers_are_quiet(verdicts: Verdicts) -> None:
    """The end of the program cuts the last one off."""
    p = Program()
    model(p)
    for tokens in (12, 5, 30, 9, 17, 12):
        answer(p, tokens)
        if tokens != 12:
            drop_kept(p)
    assert quiet(verdicts(p))


@pytest.mark.parametrize("by_variable", [True, False])
def test_who_holds_a_cache_that_is_there_at_the_end(verdicts: Verdicts, by_variable: bool) -> None:
    """A variable hands it on, which the next answer begins anew; the state of a module stays."""
    p = Program()
    model(p)
    answer(p)
    p.t.mark(HELD, 2 * p.t.line(KEEP) + by_variable)
    report = verdicts(p)
    if by_variable:
        assert not report["leaks"] and reasons(report) == [(KEEP, "carried on")]
    else:
        only(report)


def test_the_last_search_counts(verdicts: Verdicts) -> None:
    p = Program()
    model(p)
    answer(p)
    p.t.mark(HELD, 2 * p.t.line(KEEP) + 1)
    p.t.mark(HELD, 2 * p.t.line(KEEP))
    only(verdicts(p))


def test_a_list_is_a_leak_whoever_has_it(verdicts: Verdicts) -> None:
    p = Program()
    model(p)
    answer(p, keep=True)
    p.t.mark(HELD, 2 * p.t.line(KEEP) + 1)
    only(verdicts(p))


def test_training_is_not_excused(verdicts: Verdicts) -> None:
    p = Program()
    model(p)
    for _ in range(40):
        p.work()
        p.kept.append(p.new())
        p.tick()
    drop_kept(p)
    p.new(100, AFTER)
    only(verdicts(p))


def serve(p: Program, threads: int, requests: int, kept: int) -> None:
    """Threads answer side by side, each call while the others begin theirs; of the results the last `kept` stay."""
    results: list[int] = []
    running: list[list[int]] = [[] for _ in range(threads)]
    for i in range(requests):
        thread = i % threads
        for address in running[thread]:
            p.t.free(address, thread=1 + thread)
        running[thread] = []
        p.t.tick(MODULE, 0x55, p.t.line(CALL), flags=0x20, thread=1 + thread)
        for into, size in ((running[thread], 20_000), (results, 1000)):
            into.append(p.top)
            p.t.alloc(p.top, size, p.t.line(KEEP), thread=1 + thread)
            p.top += 64
        if len(results) > kept:
            p.t.free(results.pop(0), thread=1 + thread)


@pytest.mark.parametrize("threads", [1, 3, 5])
def test_calls_of_several_threads_that_keep_their_results(verdicts: Verdicts, threads: int) -> None:
    """What a call makes for itself outlives steps of other threads, and nothing is evicted by that."""
    p = Program()
    model(p)
    serve(p, threads, 90, kept=90)
    only(verdicts(p))


@pytest.mark.parametrize("threads", [1, 3, 5])
@pytest.mark.parametrize("kept", [4, 30])
def test_calls_of_several_threads_with_a_bound(verdicts: Verdicts, threads: int, kept: int) -> None:
    p = Program()
    model(p)
    serve(p, threads, 150, kept=kept)
    assert quiet(verdicts(p))


@pytest.mark.parametrize("kept", [40, 90])
def test_a_thread_that_only_takes_results_out(verdicts: Verdicts, kept: int) -> None:
    """It has called the model, too, once: what it evicts is old by the steps of the others."""
    p = Program()
    model(p)
    p.t.tick(MODULE, 0x55, p.t.line(CALL), flags=0x20, thread=9)
    results: list[int] = []
    for i in range(300):
        thread = 1 + i % 3
        p.t.tick(MODULE, 0x55, p.t.line(CALL), flags=0x20, thread=thread)
        results.append(p.top)
        p.t.alloc(p.top, 1000, p.t.line(KEEP), thread=thread)
        p.top += 64
        if len(results) > kept:
            p.t.free(results.pop(0), thread=9)
    assert quiet(verdicts(p))
