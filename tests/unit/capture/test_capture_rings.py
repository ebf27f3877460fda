"""Rings, blocks and threads: every event is in the trace once, in its thread's order."""

import pytest
from capture_support import COMPLETE, Stress


def events_of(threads: int, pairs: int) -> int:
    return threads * (2 * pairs + (pairs + 15) // 16)


def test_several_threads(stress: Stress) -> None:
    trace = stress.folder / "t.cmem"
    assert stress.run("make", trace, 4, 20000) == [events_of(4, 20000), 0]
    found = stress.verify(trace)
    assert (found.state, found.events, found.told, found.producers) == (COMPLETE, events_of(4, 20000), 0, 4)
    assert list(stress.rings.iterdir()) == []


def test_blocks_turn_over_many_times(stress: Stress) -> None:
    """0.6 GB of events and 3 MB of names through 1 MiB of rings: what found no room is told exactly."""
    trace = stress.folder / "t.cmem"
    published, lost = stress.run("make", trace, 2, 200_000, 1 << 20)
    found = stress.verify(trace)
    assert published + lost == events_of(2, 200_000)
    assert (found.state, found.events, found.told) == (COMPLETE, published, lost)


def test_a_free_never_overtakes_its_allocation(stress: Stress, long: bool) -> None:
    """Each hand-off is a chance: a merge without its watermark is found in 10,000."""
    trace, blocks = stress.folder / "t.cmem", 40_000 if long else 10_000
    published, lost = stress.run("handoff", trace, blocks, 1500)
    assert (published, lost) == (2 * blocks, 0)
    found = stress.verify(trace)
    assert (found.events, found.told, found.early_frees) == (2 * blocks + 1500 * 3, 0, 0)


def test_a_free_that_is_seen_before_its_allocation_waits(stress: Stress) -> None:
    """Both happen after the collector has read its clock; it sees the ring of the free only."""
    trace = stress.folder / "t.cmem"
    assert stress.run("overtake", trace, 50) == [102, 0]
    found = stress.verify(trace)
    assert (found.events, found.early_frees) == (102, 0)


def test_idle_threads_give_their_blocks_back(stress: Stress) -> None:
    """1 MiB has 39 blocks; 120 threads that stay alive use one each, twice."""
    trace = stress.folder / "t.cmem"
    assert stress.run("idle", trace, 120) == [120 * 5, 0]
    found = stress.verify(trace)
    assert (found.state, found.events, found.told, found.producers) == (COMPLETE, 600, 0, 120)


def test_blocks_are_taken_away_while_hooks_run(stress: Stress) -> None:
    """20 threads in 39 blocks, resting now and then, in their hooks too: blocks go back and forth all the time."""
    trace = stress.folder / "t.cmem"
    published, lost = stress.run("churn", trace, 20, 400)
    assert published + lost == events_of(20, 400)
    found = stress.verify(trace)
    assert (found.state, found.events, found.told, found.producers) == (COMPLETE, published, lost, 20)


def test_ten_thousand_short_threads(stress: Stress) -> None:
    trace = stress.folder / "t.cmem"
    assert stress.run("short", trace, 10_000) == [50_000, 0]
    found = stress.verify(trace)
    assert (found.events, found.told, found.producers) == (50_000, 0, 10_000)


def test_short_threads_while_the_collector_gets_no_turn(stress: Stress) -> None:
    """Each keeps a block of 16 KiB until it does: those that find none, or no ring, are told; then there is room."""
    trace = stress.folder / "t.cmem"
    blocks, *counts = stress.run("burst", trace, 2500)
    assert 800 < blocks < 1024 and counts == [5 * blocks, 5 * (2048 - blocks), 5 * 2500, 0]
    found = stress.verify(trace)
    assert (found.events, found.told) == (5 * (blocks + 2500), 5 * (2500 - blocks))
    assert found.producers == blocks + 2500


@pytest.mark.parametrize("threads", [200, 300])
def test_many_threads_at_once(stress: Stress, threads: int) -> None:
    trace = stress.folder / "t.cmem"
    memory, published, lost = stress.run("together", trace, threads)
    assert (published, lost) == (events_of(threads, 32), 0)
    found = stress.verify(trace)
    assert (found.events, found.told, found.producers) == (published, 0, threads)
    assert memory <= 64 << 20


def test_more_threads_than_rings(stress: Stress) -> None:
    """2,048 threads can have a ring, and all at the same moment there are fewer blocks: the rest is told."""
    trace = stress.folder / "t.cmem"
    _, published, _ = stress.run("together", trace, 2500)
    found = stress.verify(trace)
    assert found.events == published < events_of(2500, 32)
    assert found.producers <= 2048
    assert found.told == events_of(2500, 32) - published


def test_full_rings_are_chained_then_counted(stress: Stress) -> None:
    """The collector is paused: 39 blocks of 511 events, the first of which names the thread."""
    trace = stress.folder / "t.cmem"
    published, lost = stress.run("full", trace, 30_000)
    room = 39 * 511 - 1
    assert lost == events_of(1, 30_000) - room
    found = stress.verify(trace)
    assert (found.state, found.events, found.told) == (COMPLETE, published, lost)
    assert published == room + events_of(1, 100)


def test_events_from_destructors_of_an_ending_thread(stress: Stress) -> None:
    trace = stress.folder / "t.cmem"
    assert stress.run("exits", trace) == [200 * 9, 0]
    found = stress.verify(trace)
    assert (found.events, found.told, found.producers) == (1800, 0, 200)


def test_numbers_of_descriptors_that_are_the_programs_by_the_time_we_look(stress: Stress) -> None:
    """Trace, ring and statm are opened anew, and what got their numbers meanwhile is neither written to nor closed."""
    trace = stress.folder / "t.cmem"
    assert stress.run("taken", trace) == [3, events_of(1, 1000), 0]
    found = stress.verify(trace)
    assert (found.state, found.events, found.told) == (COMPLETE, events_of(1, 1000), 0)


def test_captures_one_after_the_other(stress: Stress) -> None:
    each = 5 + events_of(1, 10)
    assert stress.run("again", stress.folder, 20) == [20 * each, 0]
    for i in range(20):
        found = stress.verify(stress.folder / f"{i}.cmem")
        assert (found.state, found.events, found.producers) == (COMPLETE, each, 2)


def test_forks(stress: Stress) -> None:
    """Children with and without handlers, with and without a capture: each trace has its own process."""
    published, lost = stress.run("fork", stress.folder)
    assert (published, lost) == (events_of(1, 6000) + events_of(2, 20000), 0)
    parent = stress.verify(stress.folder / "parent.cmem")
    assert (parent.state, parent.events, parent.told, parent.producers) == (COMPLETE, published, 0, 3)
    for i in (0, 2):
        child = stress.verify(stress.folder / f"child{i}.cmem")
        assert (child.state, child.events, child.producers) == (COMPLETE, events_of(1, 1000), 1)
    assert list(stress.rings.iterdir()) == []
