"""Hand-made traces with known answers: what was alive and cached when a request was refused, and which one left."""

from typing import Any

import pytest
from craft import CUDA, IN_NODE, NODE_STACK, STEP, WINDOW_CLOSE, WINDOW_OPEN, Trace
from driver_model import DEV
from driver_parts import MIB, free, moment, new
from hand_made import Analyze, only_device
from leak_program import COLLECT_BEGIN, COLLECT_END

from tests.event_kinds import OOM, RESERVED, SEGMENT_NEW

OOM_LEFT = 11
WHOLE, KEPT = 16, 1024
NAMES = (
    "time_ns",
    "requested",
    "allocated",
    "stack",
    "step",
    "alive",
    "escaped",
    "reserved",
    "origin",
    "name",
    "memory",
    "tensors",
)
FIRST = {"device": CUDA, "index": 0}
SECOND = {"device": CUDA, "index": 1}


def rows(report: dict[str, Any], device: str = "cpu") -> list[dict[str, Any]]:
    (found,) = [row for row in report["devices"] if row["device"] == device]
    return [dict(zip(NAMES, row, strict=True)) for row in found["ooms"]]


def alive(row: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(size, count, stack) for size, count, stack, *_ in row["alive"]]


def test_what_was_alive_at_that_moment(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.alloc(0x2000, 50, t.line(2))
    t.alloc(0x3000, 60, t.line(1))
    t.alloc(0x4000, 1000, t.line(3))
    t.free(0x4000)
    t.add(OOM, 0, 1 << 40, t.line(4))
    t.alloc(0x5000, 500, t.line(1))
    (row,) = rows(analyze(t))
    assert alive(row) == [(160, 2, t.line(1)), (50, 1, t.line(2))]
    assert (row["requested"], row["allocated"], row["stack"], row["step"]) == (1 << 40, 210, t.line(4), None)
    assert (row["escaped"], row["reserved"], row["name"], row["memory"]) == (False, None, None, None)


def test_each_device_has_its_own(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1), **FIRST)
    t.alloc(0x2000, 50, t.line(2), **SECOND)
    t.add(OOM, 0, 1 << 40, t.line(4), **SECOND)
    t.add(OOM, 0, 1 << 41, t.line(4), **FIRST)
    report = analyze(t)
    assert [alive(row) for row in rows(report, "cuda:0")] == [[(100, 1, t.line(1))]]
    assert [alive(row) for row in rows(report, "cuda:1")] == [[(50, 1, t.line(2))]]


def test_one_in_backward_is_charged_to_the_forward_line(analyze: Analyze) -> None:
    t = Trace()
    t.node(5, t.line(1))
    t.add(9, 1001, 10)
    t.run(5, 10)
    t.add(OOM, 0, 1 << 40, t.line(9), flags=IN_NODE | NODE_STACK)
    t.done()
    t.add(OOM, 0, 1 << 40, t.line(9))
    inside, outside = rows(analyze(t))
    assert (inside["stack"], inside["origin"]) == (t.line(1), t.line(9)) and "MulBackward0" in inside["name"]
    assert (outside["stack"], outside["origin"], outside["name"]) == (t.line(9), t.line(9), None)


def test_of_ten_thousand_the_first_are_whole_and_the_one_that_left(analyze: Analyze) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x1000, 100, t.line(1))
    for i in range(10_000):
        t.add(OOM, 0, 1000 + i, t.line(4))
    t.mark(OOM_LEFT, 1)
    t.mark(WINDOW_CLOSE, 1)
    report = analyze(t)
    found = rows(report)
    assert only_device(report)["ooms_total"] == 10_000
    assert [row["requested"] for row in found] == [1000 + i for i in range(KEPT)] + [10_999]
    assert [i for i, row in enumerate(found) if row["alive"]] == [*range(WHOLE), KEPT]
    assert [i for i, row in enumerate(found) if row["escaped"]] == [KEPT]


def test_a_window_knows_what_left_it(analyze: Analyze) -> None:
    """An inner profile's exception is caught by the program: it left that profile alone."""
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.add(OOM, 0, 1, t.line(1))
    t.mark(WINDOW_OPEN, 2)
    t.add(OOM, 0, 2, t.line(1))
    t.mark(OOM_LEFT, 2)
    t.mark(WINDOW_CLOSE, 2)
    t.mark(WINDOW_OPEN, 3)
    t.add(OOM, 0, 3, t.line(1))
    t.mark(WINDOW_CLOSE, 3)
    assert [row["escaped"] for row in rows(analyze(t))] == [False, False, False]
    assert [(row["requested"], row["escaped"]) for row in rows(analyze(t, window=2))] == [(2, True)]
    assert [(row["requested"], row["escaped"]) for row in rows(analyze(t, window=3))] == [(3, False)]
    t.mark(OOM_LEFT, 1)
    t.mark(WINDOW_CLOSE, 1)
    assert [row["escaped"] for row in rows(analyze(t))] == [False, False, True]
    assert [row["escaped"] for row in rows(analyze(t, window=1))] == [False, False, True]


def collect(t: Trace, generation: int, *addresses: int) -> None:
    t.mark(COLLECT_BEGIN, generation)
    for address in addresses:
        t.free(address)
    t.mark(COLLECT_END, generation)


def steps(t: Trace, count: int) -> None:
    for _ in range(count):
        t.tick(STEP, 1, t.line(2))


def test_garbage_at_a_survived_refusal_is_older_than_it(analyze: Analyze) -> None:
    """Its exception is kept and raised at the end: what was made behind it was not alive there. What the step before
    made may have been in use, and so was what a full collection left."""
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    for i in range(8):
        t.alloc(0x1000 * (i + 1), 10, t.line(1))
        steps(t, 1)
    t.add(OOM, 0, 1 << 40, t.line(4))
    t.alloc(0x10000, 1000, t.line(5))  # in the step of the refusal
    collect(t, 0, 0x1000, 0x10000)
    for i in range(8, 12):
        t.alloc(0x1000 * (i + 1), 200, t.line(1))
        steps(t, 1)
    collect(t, 1, 0x2000, 0x3000, 0x8000, 0x9000)
    collect(t, 2, 0x4000, 0xA000)
    collect(t, 2, 0x5000, 0x6000, 0xB000)
    t.mark(OOM_LEFT, 1)
    garbage = only_device(analyze(t))["garbage"]
    assert garbage["after_oom"] == 4 * 10
    assert (garbage["collections"], garbage["freed"]) == (4, 1000 + 6 * 10 + 3 * 200)


def test_what_a_handler_makes_is_no_garbage_of_the_refusal(analyze: Analyze) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x1000, 10, t.line(1))
    t.add(OOM, 0, 1 << 40, t.line(4))
    t.alloc(0x2000, 1000, t.line(1))
    collect(t, 2, 0x1000, 0x2000)
    t.mark(OOM_LEFT, 1)
    garbage = only_device(analyze(t))["garbage"]
    assert (garbage["after_oom"], garbage["collections"], garbage["freed"]) == (10, 1, 1000)


@pytest.mark.parametrize("left", ["at once", "later", "another window", ""])
def test_garbage_is_counted_once(analyze: Analyze, left: str) -> None:
    """A collection on the exception's way out frees what the next one would: not once more before the refusal. One
    that is kept, and raised again after a step, has not ended the program: its newest may have been in use."""
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    for i in range(4):
        t.alloc(0x1000 * (i + 1), 10 << i, t.line(1))
    collect(t, 0, 0x1000)
    t.tick(STEP, 1, t.line(2))
    t.add(OOM, 0, 1 << 40, t.line(4))
    collect(t, 0, 0x2000)
    if left == "later":
        t.tick(STEP, 1, t.line(2))
    if left:
        t.mark(OOM_LEFT, 2 if left == "another window" else 1)
    collect(t, 2, 0x3000)
    garbage = only_device(analyze(t))["garbage"]
    counted = {"at once": (1, 10), "later": (2, 10 + 40)}.get(left, (3, 10 + 20 + 40))
    assert garbage["after_oom"] == (20 if left == "later" else 20 + 40)
    assert (garbage["collections"], garbage["freed"]) == counted


def test_a_mark_without_a_refused_request_says_nothing(analyze: Analyze) -> None:
    t = Trace()
    t.mark(WINDOW_OPEN, 1)
    t.mark(OOM_LEFT, 1)
    t.add(OOM, 0, 1, t.line(1))
    assert [row["escaped"] for row in rows(analyze(t))] == [False]


def test_after_a_kill_and_in_a_step(analyze: Analyze) -> None:
    t = Trace()
    for i in range(9):
        t.alloc(0x1000 + i * 0x100, 10, t.line(1))
        t.tick(STEP, 1, t.line(2))
    t.alloc(0x9000, 7, t.line(3))
    t.add(OOM, 0, 1 << 40, t.line(3))
    (row,) = rows(analyze(t, end=None))
    assert alive(row) == [(90, 9, t.line(1)), (7, 1, t.line(3))]


def test_what_was_cached_and_unusable(analyze: Analyze) -> None:
    """Of the second refused request, which the account of fragmentation is not about."""
    t = Trace()
    t.add(SEGMENT_NEW, 0x10000000, 20 * MIB, t.line(90), **FIRST)
    t.alloc(0x10000000 + 4 * MIB, MIB, t.line(1), **FIRST)
    t.add(RESERVED, 0, 20 * MIB, **FIRST)
    moment(t, 30 * MIB, total=40 * MIB)
    t.add(OOM, MIB, 5 * MIB, t.line(3), **FIRST)
    t.add(SEGMENT_NEW, 0x30000000, 2 * MIB, t.line(90), **FIRST)
    t.add(RESERVED, 0, 22 * MIB, **FIRST)
    t.add(OOM, MIB, 25 * MIB, t.line(3), **FIRST)
    report = analyze(t)
    first, second = (row["memory"] for row in rows(report, "cuda:0"))
    assert (first["reserved"], first["allocated"], first["asked"], first["too_small"]) == (
        20 * MIB,
        MIB,
        5 * MIB,
        4 * MIB,
    )
    assert (second["reserved"], second["asked"], second["too_small"]) == (22 * MIB, 25 * MIB, 21 * MIB)
    assert second["free_on_device"] == 8 * MIB and second["empty_cache_returns"] == 2 * MIB
    assert second["largest_free_block"] == 15 * MIB
    assert [row["too_small"] for row in report["fragmentation"]] == [None, 4 * MIB, None]
    assert [row["reserved"] for row in rows(report, "cuda:0")] == [20 * MIB, 22 * MIB]


def test_free_on_the_device_rests_on_a_moment_under_which_nothing_moved(analyze: Analyze) -> None:
    """A measurement during a call of the driver may be of before or after it. The next quiet one counts, with what was
    allocated in between: in the first programs there is no earlier one."""
    t = Trace()
    t.add(SEGMENT_NEW, 0x10000000, 20 * MIB, t.line(90), **FIRST)
    moment(t, 28 * MIB, quiet=False, total=40 * MIB)
    t.add(OOM, 0, 30 * MIB, t.line(3), **FIRST)
    moment(t, 30 * MIB, total=40 * MIB)
    moment(t, 37 * MIB, quiet=False, total=40 * MIB)
    t.add(OOM, 0, 30 * MIB, t.line(3), **FIRST)
    told = [row["memory"]["free_on_device"] for row in rows(analyze(t), "cuda:0")]
    assert told == [10 * MIB, 10 * MIB]


def test_what_was_free_before_the_first_measurement(analyze: Analyze) -> None:
    """What was allocated at the failed request and freed before that measurement was not free."""
    t = Trace()
    new(t, DEV, 0x10000000, 20 * MIB, **FIRST)
    t.add(SEGMENT_NEW, 0x10000000, 20 * MIB, t.line(90), **FIRST)
    t.add(OOM, 0, 30 * MIB, t.line(3), **FIRST)
    free(t, DEV, 0x10000000, **FIRST)
    moment(t, 15 * MIB, total=40 * MIB)
    (only,) = rows(analyze(t), "cuda:0")
    assert only["memory"]["free_on_device"] == 5 * MIB


def test_a_first_request_beyond_the_device(analyze: Analyze) -> None:
    """PyTorch has no segment yet, and its message says what is free."""
    t = Trace()
    moment(t, 10 * MIB, total=40 * MIB)
    t.add(OOM, 0, 50 * MIB, t.line(3), **FIRST)
    (only,) = rows(analyze(t), "cuda:0")
    assert (only["memory"]["free_on_device"], only["memory"]["segments_total"]) == (30 * MIB, 0)
