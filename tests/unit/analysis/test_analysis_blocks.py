"""Hand-made traces with known answers: the heap's blocks and its peak, and what was alive before."""

import pytest
from craft import CUDA, SEEDED, STEP, Trace
from hand_made import Analyze, only_device, shares, step_rows

from tests.event_kinds import SEED

# --- blocks ---------------------------------------------------------------------------------------------------


def test_peak_and_its_contributors(analyze: Analyze) -> None:
    t = Trace()
    a, b, c = t.line(1), t.line(2), t.line(3)
    t.alloc(0x1000, 100, a)
    t.alloc(0x2000, 300, b)
    t.alloc(0x3000, 50, a)
    top = t.elapsed
    t.free(0x2000)
    t.alloc(0x2000, 200, c)
    t.free(0x1000)
    device = only_device(analyze(t))
    assert device["peak"] == 450 and device["peak_time_ns"] == top and device["peak_step"] is None
    assert shares(device["contributors"]) == [(300, 1, b), (150, 2, a)]
    assert (device["start"], device["end"], device["allocated"], device["freed"]) == (0, 250, 650, 400)
    assert (device["allocations"], device["frees"]) == (4, 2)


def test_an_equal_maximum_does_not_move_the_peak(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    first = t.elapsed
    t.free(0x1000)
    t.alloc(0x1000, 100, t.line(2))
    device = only_device(analyze(t))
    assert device["peak_time_ns"] == first
    assert shares(device["contributors"]) == [(100, 1, t.line(1))]


def test_allocation_at_a_live_address_replaces(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.alloc(0x1000, 70, t.line(2))
    t.free(0x1000)
    report = analyze(t)
    device = only_device(report)
    assert report["lost"]["replaced"] == 1
    assert (device["peak"], device["end"], device["allocated"], device["freed"]) == (100, 0, 170, 170)
    assert (device["allocations"], device["frees"]) == (2, 1)


def test_free_of_an_unknown_block_is_counted(analyze: Analyze) -> None:
    t = Trace()
    t.free(0x9000)
    t.alloc(0x1000, 100, t.line(1))
    t.free(0x1000)
    t.free(0x1000)
    report = analyze(t)
    assert report["lost"]["unknown_frees"] == 2
    assert only_device(report)["end"] == 0


def test_nothing_and_nowhere_are_no_blocks(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0, 100, t.line(1))
    t.alloc(0x1000, 0, t.line(1))
    t.free(0)
    t.alloc(0x2000, 8, t.line(1))
    report = analyze(t)
    assert report["allocations"] == 1 and only_device(report)["peak"] == 8
    assert report["lost"]["unknown_frees"] == 0


def test_devices_are_apart(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.alloc(0x1000, 7, t.line(1), device=CUDA, index=0)
    t.alloc(0x1000, 9, t.line(1), device=CUDA, index=1)
    t.free(0x1000, device=CUDA, index=0)
    report = analyze(t)
    assert {d["device"]: (d["peak"], d["end"]) for d in report["devices"]} == {
        "cpu": (100, 100),
        "cuda:0": (7, 0),
        "cuda:1": (9, 9),
    }


def test_the_cpu_is_one_device_whatever_its_index(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1), index=-1)
    t.free(0x1000, index=0)
    assert only_device(analyze(t))["end"] == 0


def test_blocks_know_their_way_through_a_crowded_table(analyze: Analyze) -> None:
    """Many more blocks than a small table holds, freed in another order: every one is found."""
    t = Trace()
    stack = t.line(1)
    for i in range(5000):
        t.alloc(0x1000 + 64 * i, 64, stack)
    for i in sorted(range(5000), key=lambda i: i * 7919 % 5000):
        t.free(0x1000 + 64 * i)
    report = analyze(t)
    assert only_device(report)["peak"] == 320_000 and only_device(report)["end"] == 0
    assert not any(report["lost"].values())


# --- seeds ----------------------------------------------------------------------------------------------------


def test_a_seed_is_alive_from_the_start(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED, 3)
    t.free(0x5000)
    report = analyze(t)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == (500, 510, 10)
    assert device["contributors"][0][:6] == (500, 1, 0, 0, "before start", None)
    assert (device["allocations"], device["allocated"], device["frees"], device["freed"]) == (1, 10, 1, 500)
    assert report["lost"]["seeds_skipped"] == 3 and report["lost"]["unknown_frees"] == 0


# Of blocks 5 and 6 by number what happens before the walk ends; bytes at the start, the peak and the end; replaced.
SEEDS: dict[str, tuple[list[tuple[int, str, int]], tuple[int, int, int], int]] = {
    "freed before the walk reached it": ([(5, "free", 0), (6, "alloc", 100), (5, "seed", 500)], (500, 500, 100), 0),
    "its address was allocated first": (
        [(5, "alloc", 500), (5, "seed", 500), (6, "alloc", 60), (6, "free", 0), (6, "seed", 60)],
        (0, 560, 500),
        0,
    ),
    "freed and allocated again": ([(5, "free", 0), (5, "alloc", 20), (5, "seed", 500)], (500, 500, 20), 0),
    "found twice": ([(5, "seed", 500), (5, "seed", 500)], (500, 500, 500), 0),
    "found twice after its allocation": (
        [(5, "alloc", 500), (5, "free", 0), (5, "seed", 500), (5, "seed", 500)],
        (0, 500, 0),
        0,
    ),
    "its free was not seen": ([(5, "seed", 500), (5, "alloc", 20), (6, "seed", 1)], (501, 501, 21), 1),
}


@pytest.mark.parametrize("name", SEEDS)
def test_what_a_walk_finds_while_the_program_goes_on(analyze: Analyze, name: str) -> None:
    events, figures, replaced = SEEDS[name]
    t = Trace()
    for block, what, size in events:
        if what == "alloc":
            t.alloc(block << 12, size, t.line(1))
        elif what == "free":
            t.free(block << 12)
        else:
            t.add(SEED, block << 12, size)
    t.mark(SEEDED)
    report = analyze(t)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == figures
    assert (report["lost"]["unknown_frees"], report["lost"]["replaced"]) == (0, replaced)
    assert any(row[4] == "before start" for row in device["contributors"]) == (figures[0] > 0)


def test_what_a_later_walk_finds_is_no_allocation_of_the_step(analyze: Analyze) -> None:
    t = Trace()
    t.mark(SEEDED)
    t.alloc(0x1000, 10, t.line(1))
    t.add(SEED, 0x7000, 700)
    t.tick(STEP, 1, t.line(9))
    assert step_rows(analyze(t)) == [(0, 0, 710, 710, 710, 0, 1)]


def test_a_walk_that_was_cut_short(analyze: Analyze) -> None:
    t = Trace()
    t.free(0x5000)
    t.add(SEED, 0x5000, 500)
    t.add(SEED, 0x6000, 600)
    report = analyze(t, end=None)
    assert only_device(report)["start"] == 1100 and only_device(report)["end"] == 600
    assert report["state"] == "cut" and not report["complete"] and report["reason"]


def test_a_later_walk_adds_what_was_unknown(analyze: Analyze) -> None:
    t = Trace()
    t.mark(SEEDED)
    t.alloc(0x1000, 10, t.line(1))
    t.add(SEED, 0x1000, 10)
    t.add(SEED, 0x7000, 700)
    t.mark(SEEDED)
    t.free(0x7000)
    device = only_device(analyze(t))
    assert (device["start"], device["peak"], device["end"]) == (0, 710, 10)
    assert device["allocations"] == 1 and device["start"] + device["allocated"] - device["freed"] == device["end"]
