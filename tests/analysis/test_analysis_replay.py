"""Hand-made traces with known answers: the heap, the backward join, phases, peaks, steps, windows."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from craft import (
    BEFORE_START,
    CUDA,
    DATA,
    GRAIN,
    IN_NODE,
    LOST,
    NO_SEQUENCE,
    NODE_FREE,
    NODE_STACK,
    OBJECT_NEW,
    OOM,
    OPTIMIZER,
    RESERVED,
    SAMPLE,
    SEED,
    SEEDED,
    STEP,
    THREAD,
    TORCH,
    WINDOW_CLOSE,
    WINDOW_OPEN,
    Trace,
)

Analyze = Callable[..., dict[str, Any]]
ACCUMULATE = "N5torch8autograd14AccumulateGradE"


def only_device(report: dict[str, Any]) -> dict[str, Any]:
    (device,) = report["devices"]
    assert isinstance(device, dict)
    return device


def shares(rows: list[tuple[Any, ...]]) -> list[tuple[int, int, int]]:
    return [(size, count, stack) for size, count, stack, *_ in rows]


# --- blocks ---------------------------------------------------------------------------------


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
    assert report["lost"] == {"events": 0, "stacks": 0, "unknown_frees": 0, "replaced": 0, "seeds_skipped": 0}


# --- seeds ----------------------------------------------------------------------------------


def test_a_seed_is_alive_from_the_start(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED, 3)
    t.free(0x5000)
    report = analyze(t)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == (500, 510, 10)
    assert device["contributors"][0] == (500, 1, 0, 0, "before start", None)
    assert (device["allocations"], device["allocated"], device["frees"], device["freed"]) == (1, 10, 1, 500)
    assert report["lost"]["seeds_skipped"] == 3 and report["lost"]["unknown_frees"] == 0


def test_a_seed_that_was_freed_before_the_walk_reached_it(analyze: Analyze) -> None:
    t = Trace()
    t.free(0x5000)
    t.alloc(0x6000, 100, t.line(1))
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED)
    report = analyze(t)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == (500, 500, 100)
    assert report["lost"]["unknown_frees"] == 0


def test_a_seed_whose_address_was_allocated_first_is_none(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x5000, 500, t.line(1))
    t.add(SEED, 0x5000, 500)
    t.alloc(0x6000, 60, t.line(1))
    t.free(0x6000)
    t.add(SEED, 0x6000, 60)
    t.mark(SEEDED)
    device = only_device(analyze(t))
    assert (device["start"], device["peak"], device["end"]) == (0, 560, 500)
    assert all(row[4] != "before start" for row in device["contributors"])


def test_a_seed_freed_and_allocated_again(analyze: Analyze) -> None:
    t = Trace()
    t.free(0x5000)
    t.alloc(0x5000, 20, t.line(1))
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED)
    device = only_device(analyze(t))
    assert (device["start"], device["peak"], device["end"]) == (500, 500, 20)


def test_a_seed_found_twice_counts_once(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEED, 0x5000, 500)
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED)
    assert only_device(analyze(t))["end"] == 500


def test_a_seed_found_twice_after_its_allocation_is_none(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x5000, 500, t.line(1))
    t.free(0x5000)
    t.add(SEED, 0x5000, 500)
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED)
    device = only_device(analyze(t))
    assert (device["start"], device["end"]) == (0, 0)


def test_a_seed_whose_free_was_not_seen_is_replaced(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEED, 0x5000, 500)
    t.alloc(0x5000, 20, t.line(1))
    t.add(SEED, 0x6000, 1)
    t.mark(SEEDED)
    report = analyze(t)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == (501, 501, 21)
    assert report["lost"]["replaced"] == 1


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


# --- phases and lines -----------------------------------------------------------------------

TRAIN = ("train.py", "main", 9)
CALL = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 0x77, "Linear")
PHASES = {
    "forward": ((TORCH + "nn/functional.py", "linear", 5), CALL, TRAIN),
    "optimizer": ((TORCH + "optim/adam.py", "step", 5), TRAIN),
    "data": (("dataset.py", "__getitem__", 3), (TORCH + "utils/data/_utils/fetch.py", "fetch", 54), TRAIN),
    "other": (TRAIN,),
}
NESTED = {
    # The closure of an LBFGS step runs the model; a data set may run a module; a custom optimizer is
    # called through torch/optim; a folder that happens to be called torch is the user's.
    "forward": (CALL, ("train.py", "closure", 4), (TORCH + "optim/lbfgs.py", "step", 5), TRAIN),
    "data": (CALL, ("transforms.py", "t", 3), (TORCH + "utils/data/_utils/fetch.py", "fetch", 54), TRAIN),
    "optimizer": (("shampoo.py", "step", 4), (TORCH + "optim/optimizer.py", "wrapper", 5), TRAIN),
    "other": (("/home/me/torch/optim/mine.py", "step", 4), TRAIN),
}


@pytest.mark.parametrize("stacks", [PHASES, NESTED], ids=["plain", "nested"])
@pytest.mark.parametrize("phase", PHASES)
def test_phases(analyze: Analyze, stacks: dict[str, tuple[Any, ...]], phase: str) -> None:
    t = Trace()
    t.alloc(0x1000, 8, t.stack(*stacks[phase]))
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == [phase]


def test_a_loss_by_hand_is_forward_because_it_makes_a_node(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1, t.line(5))
    t.node(7, t.line(5))
    t.alloc(0x2000, 8, t.line(5))
    rows = only_device(analyze(t))["contributors"]
    assert [(row[0], row[4]) for row in rows] == [(8, "forward"), (1, "other")]


def test_a_loss_by_hand_in_a_closure_is_forward(analyze: Analyze) -> None:
    t = Trace()
    stack = t.stack(("train.py", "closure", 4), (TORCH + "optim/lbfgs.py", "step", 5), TRAIN)
    t.node(7, stack)
    t.alloc(0x1000, 8, stack)
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == ["forward"]


def test_a_torch_built_in_its_source_tree_is_torch(analyze: Analyze) -> None:
    t = Trace()
    root = "/src/pytorch/torch/"
    # The file of optim is met before the one by which the tree is recognised.
    t.alloc(0x1000, 8, t.stack((root + "optim/adam.py", "step", 5), TRAIN))
    t.alloc(0x2000, 4, t.stack((root + "optim/optimizer.py", "wrapper", 5), TRAIN))
    assert [row[4] for row in only_device(analyze(t))["contributors"]] == ["optimizer", "optimizer"]


def test_stacks_have_their_frames(analyze: Analyze) -> None:
    t = Trace()
    stack = t.stack((TORCH + "nn/functional.py", "linear", 5), CALL, TRAIN)
    t.alloc(0x1000, 8, stack)
    t.alloc(0x2000, 4)
    report = analyze(t)
    assert report["stacks"] == {
        0: [],
        stack: [
            (TORCH + "nn/functional.py", "linear", 5, 5, 4, 9, None, 0),
            (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 1775, 4, 9, "Linear", 0x77),
            ("train.py", "main", 9, 9, 4, 9, None, 0),
        ],
    }


# --- backward -------------------------------------------------------------------------------


def threads(t: Trace, *numbers: int) -> None:
    for number in numbers:
        t.add(THREAD, 1000 + number, 10 + number, thread=number)


def backward_alloc(t: Trace, address: int, size: int, **more: int) -> None:
    t.alloc(address, size, t.line(99), flags=IN_NODE | NODE_STACK, **more)


def test_backward_is_charged_to_the_forward_line(analyze: Analyze) -> None:
    """Made by thread 1, run by thread 2, which has no Python frames of its own."""
    t = Trace()
    threads(t, 1, 2)
    t.node(5, t.line(1))
    t.node(6, t.line(2))
    t.run(6, 11, thread=2)
    t.alloc(0x1000, 100, 0, flags=IN_NODE | NODE_STACK, thread=2)
    t.done(thread=2)
    t.run(5, 11, "N5torch8autograd9generated14AddmmBackward0E", thread=2)
    t.alloc(0x2000, 50, 0, flags=IN_NODE | NODE_STACK, thread=2)
    t.done(thread=2)
    report = analyze(t)
    assert only_device(report)["contributors"] == [
        (100, 1, t.line(2), 0, "backward", "MulBackward0"),
        (50, 1, t.line(1), 0, "backward", "AddmmBackward0"),
    ]
    assert report["backward"] == {"bytes": 150, "resolved": 150, "accumulation": 0, "unresolved": 0}


def test_numbers_are_per_thread(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1, 2)
    t.node(5, t.line(1), thread=1)
    t.node(5, t.line(2), thread=2)
    t.run(5, 12)
    backward_alloc(t, 0x1000, 8)
    assert shares(only_device(analyze(t))["contributors"]) == [(8, 1, t.line(2))]


def test_the_autograd_id_may_come_late(analyze: Analyze) -> None:
    t = Trace()
    t.add(THREAD, 1001, 0)
    t.node(5, t.line(1))
    t.add(THREAD, 1001, 11)
    t.run(5, 11)
    backward_alloc(t, 0x1000, 8)
    assert shares(only_device(analyze(t))["contributors"]) == [(8, 1, t.line(1))]


def test_newer_python_frames_are_the_line(analyze: Analyze) -> None:
    """A hook, a backward written in Python, a recomputation."""
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.alloc(0x1000, 8, t.line(44), flags=IN_NODE)
    report = analyze(t)
    assert only_device(report)["contributors"] == [(8, 1, t.line(44), t.line(44), "backward", "MulBackward0")]
    assert report["backward"]["resolved"] == 8


def test_double_backward_follows_one_link(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.node(8, t.line(99), flags=IN_NODE | NODE_STACK)  # create_graph
    t.done()
    t.run(8, 11)
    t.node(9, t.line(99), flags=IN_NODE | NODE_STACK)  # and once more
    backward_alloc(t, 0x1000, 100)
    t.done()
    t.run(9, 11)
    backward_alloc(t, 0x2000, 8)
    assert shares(only_device(analyze(t))["contributors"]) == [(108, 2, t.line(1))]


def test_a_node_made_by_a_recomputation_has_its_own_line(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.node(8, t.line(44), flags=IN_NODE)
    t.run(8, 11)  # a backward inside the node
    backward_alloc(t, 0x1000, 8)
    t.done()
    backward_alloc(t, 0x2000, 4)
    assert shares(only_device(analyze(t))["contributors"]) == [(8, 1, t.line(44)), (4, 1, t.line(1))]


def test_accumulation_belongs_to_the_node_before_it(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.done()
    for address in (0x1000, 0x2000):  # weight and bias
        t.run(NO_SEQUENCE, 11, ACCUMULATE)
        backward_alloc(t, address, 8)
        t.done()
    report = analyze(t)
    assert only_device(report)["contributors"] == [(16, 2, t.line(1), t.line(99), "backward", "AccumulateGrad")]
    assert report["backward"] == {"bytes": 16, "resolved": 16, "accumulation": 0, "unresolved": 0}


def test_accumulation_without_a_node_before_it_has_a_name(analyze: Analyze) -> None:
    """After a forward another backward has begun: the last one's nodes did not run before this."""
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.done()
    t.alloc(0x3000, 1, t.line(3))
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    backward_alloc(t, 0x1000, 8)
    report = analyze(t)
    assert only_device(report)["contributors"][0] == (8, 1, t.line(99), t.line(99), "backward", "gradient accumulation")
    assert report["backward"] == {"bytes": 8, "resolved": 0, "accumulation": 8, "unresolved": 0}


def test_a_nested_backward_has_its_own_nodes_before(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11)
    t.run(NO_SEQUENCE, 11, ACCUMULATE)  # inside: nothing ran before it there
    backward_alloc(t, 0x1000, 8)
    t.done()
    t.done()
    t.run(NO_SEQUENCE, 11, ACCUMULATE)
    backward_alloc(t, 0x2000, 4)
    rows = only_device(analyze(t))["contributors"]
    assert [(row[0], row[2], row[5]) for row in rows] == [
        (8, t.line(99), "gradient accumulation"),
        (4, t.line(1), "AccumulateGrad"),
    ]


@pytest.mark.parametrize("why", ["older than the recording", "freed", "unknown thread", "no frames", "events lost"])
def test_what_cannot_be_resolved_is_said(analyze: Analyze, why: str) -> None:
    t = Trace()
    threads(t, 1)
    if why != "older than the recording":
        t.node(5, t.line(1) if why != "no frames" else 0)
    if why == "freed":
        t.add(NODE_FREE, 5, 11)
    t.run(5, 77 if why == "unknown thread" else 11)
    if why == "events lost":
        t.add(LOST, 0, 3)
    backward_alloc(t, 0x1000, 8)
    report = analyze(t)
    assert shares(only_device(report)["contributors"]) == [(8, 1, t.line(99))]
    assert report["backward"] == {"bytes": 8, "resolved": 0, "accumulation": 0, "unresolved": 8}


def test_old_nodes_are_found_behind_many_new_ones(analyze: Analyze) -> None:
    """Nodes outlive their place at hand, are freed, and are made anew."""
    t = Trace()
    threads(t, 1)
    t.node(1, t.line(1))
    for sequence in range(2, 6000):
        t.node(sequence, t.line(2))
        t.add(NODE_FREE, sequence, 11)
    t.node(6000, t.line(3))
    for address, sequence in ((0x1000, 1), (0x2000, 6000), (0x3000, 4000)):
        t.run(sequence, 11)
        backward_alloc(t, address, 8)
        t.done()
    report = analyze(t)
    assert sorted(row[2] for row in only_device(report)["contributors"]) == sorted([t.line(1), t.line(3), t.line(99)])
    assert report["backward"]["unresolved"] == 8


def test_a_large_graph_without_frees_stays_known(analyze: Analyze) -> None:
    t = Trace()
    threads(t, 1)
    for sequence in range(20_000):
        t.node(sequence, t.line(1 + sequence % 3))
    for i, sequence in enumerate((0, 1, 777, 19_999)):
        t.run(sequence, 11)
        backward_alloc(t, 0x1000 * (i + 1), 8)
        t.done()
    assert analyze(t)["backward"] == {"bytes": 32, "resolved": 32, "accumulation": 0, "unresolved": 0}


@pytest.mark.parametrize(
    ("rtti", "shown"),
    [
        ("N5torch8autograd9generated14AddmmBackward0E", "AddmmBackward0"),
        (ACCUMULATE, "AccumulateGrad"),
        ("N5torch8autograd6PyNodeE", "PyNode"),
        ("N5torch8autograd7CppNodeI4MyFnEE", "CppNode"),
        ("*N4mine4NodeE", "Node"),
        ("8FreeNode", "FreeNode"),
        ("MyFunctionBackward", "MyFunctionBackward"),
        ("N99999999999999999999x", "N99999999999999999999x"),
    ],
)
def test_node_names(analyze: Analyze, rtti: str, shown: str) -> None:
    t = Trace()
    threads(t, 1)
    t.node(5, t.line(1))
    t.run(5, 11, rtti)
    backward_alloc(t, 0x1000, 8)
    assert only_device(analyze(t))["contributors"][0][5] == shown


# --- steps ----------------------------------------------------------------------------------


def step_rows(report: dict[str, Any]) -> list[tuple[int, ...]]:
    names = ("index", "start", "peak", "end", "allocated", "freed", "allocations")
    return [tuple(step[name] for name in names) for step in report["steps"]]


def training(t: Trace, steps: int) -> None:
    """Setup of 1000 bytes, then steps that peak at +300 and keep 10 bytes each."""
    optimizer = t.stack((TORCH + "optim/optimizer.py", "wrapper", 5), ("train.py", "main", 20))
    loader = t.stack((TORCH + "utils/data/dataloader.py", "__next__", 5), ("train.py", "main", 10))
    t.add(OBJECT_NEW, 0x77, 1, t.name("Linear"))
    t.alloc(0x1000, 1000, t.line(1))
    for i in range(steps):
        t.tick(DATA, 0x88, loader)
        t.alloc(0x2000, 200, t.line(11))
        t.alloc(0x3000, 100, t.line(12))
        t.alloc(0x10000 + 64 * i, 10, t.line(13))
        t.free(0x3000)
        t.tick(OPTIMIZER, 0x99, optimizer)
        t.free(0x2000)


def test_steps(analyze: Analyze) -> None:
    t = Trace()
    training(t, 4)
    t.alloc(0x9000, 5000, t.line(50))
    report = analyze(t)
    assert step_rows(report) == [
        (0, 1000, 1310, 1210, 310, 100, 3),
        (1, 1210, 1320, 1220, 310, 300, 3),
        (2, 1220, 1330, 1230, 310, 300, 3),
        (3, 1230, 1340, 1240, 310, 300, 3),
    ]
    assert {step["loop"] for step in report["steps"]} == {"training"}
    assert report["clock"]["kind"] == "optimizer"
    assert report["clock"]["where"] == ("train.py", 20, "main")
    device = only_device(report)
    assert device["peak"] == 6040 and device["peak_step"] is None  # in the tail


def test_steps_tile_the_time(analyze: Analyze) -> None:
    t = Trace()
    training(t, 5)
    steps = analyze(t)["steps"]
    for before, after in pairwise(steps):
        assert before["end_ns"] == after["begin_ns"] and before["end"] == after["start"]
    for step in steps:
        assert step["begin_ns"] <= step["peak_ns"] <= step["end_ns"]


def test_contributors_of_a_step_are_those_of_its_peak(analyze: Analyze) -> None:
    t = Trace()
    training(t, 3)
    report = analyze(t)
    assert shares(report["steps"][1]["contributors"]) == [
        (1000, 1, t.line(1)),
        (200, 1, t.line(11)),
        (100, 1, t.line(12)),
        (20, 2, t.line(13)),
    ]
    assert report["steps"][1]["rest"] == (0, 0)


def test_ten_contributors_and_the_rest(analyze: Analyze) -> None:
    t = Trace()
    stack = t.line(999)
    for i in range(25):
        t.alloc(0x1000 * (i + 1), 100 + i, t.line(i + 1))
    t.tick(STEP, 1, stack)
    t.alloc(0x100000, 1, t.line(500))
    t.tick(STEP, 1, stack)
    first, second = analyze(t)["steps"]
    assert shares(first["contributors"]) == [(100 + i, 1, t.line(i + 1)) for i in range(24, 14, -1)]
    assert first["rest"] == (sum(100 + i for i in range(15)), 15)
    assert shares(second["contributors"]) == shares(first["contributors"])
    assert second["rest"] == (first["rest"][0] + 1, 16)


def test_contributors_of_the_step_that_is_asked_for(analyze: Analyze) -> None:
    t = Trace()
    training(t, 3)
    t.alloc(0x9000, 5000, t.line(50))
    report = analyze(t, step=2)
    assert sum(row[0] for row in only_device(report)["contributors"]) == report["steps"][2]["peak"] == 1330
    assert only_device(report)["peak"] == 6030


def test_a_step_that_is_not_there(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    training(t, 3)
    with pytest.raises(Error, match=r"^the trace has no step 3: it has 3$"):
        analyze(t, step=3)


def test_every_device_has_its_steps(analyze: Analyze) -> None:
    t = Trace()
    stack = t.line(9)
    t.alloc(0x1000, 10, stack)
    t.tick(STEP, 1, stack)
    t.alloc(0x1000, 70, stack, device=CUDA, index=0)
    t.tick(STEP, 1, stack)
    steps = analyze(t)["steps"]
    assert [(s["index"], s["device"], s["start"], s["peak"], s["end"]) for s in steps] == [
        (0, "cpu", 0, 10, 10),
        (1, "cpu", 10, 10, 10),
        (1, "cuda:0", 0, 70, 70),
    ]


def test_survivors_at_the_last_boundary_and_at_the_end(analyze: Analyze) -> None:
    t = Trace()
    training(t, 4)
    t.alloc(0x9000, 5000, t.line(50))
    report = analyze(t)
    assert report["survivors"] == [
        ("cpu", t.line(1), 1000, 1, -1, -1),
        ("cpu", t.line(11), 200, 1, 3, 3),
        ("cpu", t.line(13), 40, 4, 0, 3),
    ]
    assert report["survivors_at_end"] == [
        ("cpu", t.line(50), 5000, 1, 4, 4),
        ("cpu", t.line(1), 1000, 1, -1, -1),
        ("cpu", t.line(13), 40, 4, 0, 3),
    ]


def test_without_a_clock_there_are_no_steps(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    report = analyze(t)
    assert report["steps"] == []
    assert report["clock"] == {"kind": None, "where": None, "changes": [], "loops": []}
    assert report["survivors"] == report["survivors_at_end"] == [("cpu", t.line(1), 10, 1, -1, -1)]


# --- curves and side notes ------------------------------------------------------------------


@pytest.mark.parametrize("points", [2, 7, 100, 0])
def test_the_true_peak_is_in_the_timeline(analyze: Analyze, points: int) -> None:
    t = Trace()
    stack = t.line(1)
    for i in range(3000):
        size = 777_777 if i == 1234 else 100 + i % 50
        t.alloc(0x1000, size, stack, after=GRAIN * (1 + i * i % 900))
        t.free(0x1000)
    report = analyze(t, points=points)
    curve = only_device(report)["timeline"]
    assert len(curve) <= (points or 2048)
    assert max(top for _, _, top, _ in curve) == only_device(report)["peak"] == 777_777
    assert min(low for _, low, _, _ in curve) == 0
    times = [time for time, *_ in curve]
    assert times == sorted(set(times)) and times[-1] <= report["duration_ns"]


def test_reserved_totals(analyze: Analyze) -> None:
    t = Trace()
    cuda = {"device": CUDA, "index": 0}
    t.alloc(0x1000, 100, t.line(1), **cuda)
    t.add(RESERVED, 100, 2048, **cuda)
    t.add(RESERVED, 100, 512, after=1 << 22, **cuda)
    t.alloc(0x2000, 10, t.line(1))
    cuda_report, cpu = analyze(t)["devices"]
    assert cuda_report["reserved_peak"] == 2048 and cpu["reserved_peak"] is None
    assert [reserved for *_, reserved in cuda_report["timeline"]] == [2048, 512]
    assert all(reserved is None for *_, reserved in cpu["timeline"])


def test_out_of_memory(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.tick(STEP, 1, t.line(2))
    t.add(OOM, 100, 1 << 40, t.line(3))
    at = t.elapsed
    t.tick(STEP, 1, t.line(2))
    report = analyze(t)
    assert only_device(report)["ooms"] == [(at, 1 << 40, 100, t.line(3), 1)]
    assert report["stacks"][t.line(3)][0][:3] == ("train.py", "main", 3)


def test_resident_memory(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    for i in range(5000):
        t.add(SAMPLE, 1, 1000 + i if i != 3000 else 99_999, after=1 << 20, thread=0)
    rss = analyze(t, points=50)["rss"]
    assert len(rss) <= 50 and max(size for _, size in rss) == 99_999


def test_counts_and_meta(analyze: Analyze, tmp_path: Path) -> None:
    from cuptimem import _core

    t = Trace()
    t.alloc(0x1000, 100, t.line(1))
    t.alloc(0x2000, 100, t.line(1), thread=4)
    t.free(0x1000, thread=4)
    t.add(SAMPLE, 1, 1000, thread=0)  # the collector's: none of the program's threads
    report = _core.analyze(t.write(tmp_path / "t.cmem", meta={"torch": "2.13.0"}, per_batch=1, lost=5))
    assert report["schema"] == 1 and report["complete"] and report["state"] == "complete"
    assert (report["events"], report["allocations"], report["threads"]) == (4, 2, 2)
    assert report["meta"] == {"torch": "2.13.0"} and report["lost"]["events"] == 5
    assert report["duration_ns"] == t.elapsed
    assert report["start_realtime_ns"] == 10**9 + t.events[0].time


def test_batches_change_nothing(analyze: Analyze) -> None:
    t = Trace()
    training(t, 6)
    assert analyze(t, per_batch=3) == analyze(t, per_batch=1000)


# --- windows --------------------------------------------------------------------------------


def test_a_window_has_its_own_numbers(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEED, 0x5000, 500)
    t.mark(SEEDED)
    t.alloc(0x1000, 10_000, t.line(1))
    t.free(0x1000)
    t.free(0x9000)  # unknown
    t.alloc(0x1000, 50, t.line(2))
    t.alloc(0x1000, 100, t.line(2))  # replaces
    t.tick(STEP, 1, t.line(8))
    t.mark(WINDOW_OPEN, 7)
    opened = t.elapsed
    t.alloc(0x2000, 40, t.line(3))
    t.tick(STEP, 1, t.line(8))
    t.free(0x1000)
    t.tick(STEP, 1, t.line(8))
    t.mark(WINDOW_CLOSE, 7)
    closed = t.elapsed
    t.alloc(0x3000, 9999, t.line(4))
    report = analyze(t, window=7)
    device = only_device(report)
    assert (device["start"], device["peak"], device["end"]) == (600, 640, 540)
    assert shares(device["contributors"]) == [(500, 1, 0), (100, 1, t.line(2)), (40, 1, t.line(3))]
    assert (device["allocations"], device["frees"]) == (1, 1)
    assert step_rows(report) == [(0, 600, 640, 640, 40, 0, 1), (1, 640, 640, 540, 0, 100, 0)]
    assert (report["begin_ns"], report["duration_ns"]) == (opened, closed - opened)
    assert report["events"] == 4
    assert report["lost"]["unknown_frees"] == report["lost"]["replaced"] == 0  # those before it are not its own


def test_a_window_that_is_still_open(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    t.mark(WINDOW_OPEN, 1)
    t.alloc(0x2000, 20, t.line(1))
    assert only_device(analyze(t, window=1, end=None))["end"] == 30


def test_an_unknown_window(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    t.alloc(0x1000, 10, t.line(1))
    with pytest.raises(Error, match=r"^the trace has no window 3$"):
        analyze(t, window=3)


# --- damage and interruption ----------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_impossible_sizes_are_damage(analyze: Analyze, size: int) -> None:
    from cuptimem._core import Error

    t = Trace()
    t.alloc(0x1000, size, t.line(1))
    with pytest.raises(Error, match=r"^the trace is damaged: it has a block of an impossible size$"):
        analyze(t)


def test_sums_cannot_overflow(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    for i in range(40_000):
        t.alloc(0x1000 * (i + 1), 1 << 48, t.line(1))
    with pytest.raises(Error, match=r"^the trace is damaged"):
        analyze(t)


def test_too_many_devices_are_damage(analyze: Analyze) -> None:
    from cuptimem._core import Error

    t = Trace()
    for i in range(256):
        t.alloc(0x1000, 8, device=1 + i // 128, index=i % 128)
    assert len(analyze(t)["devices"]) == 256
    t.alloc(0x1000, 8, device=9, index=0)
    with pytest.raises(Error, match=r"^the trace is damaged: it names more than 256 devices$"):
        analyze(t)


def test_an_empty_trace(analyze: Analyze) -> None:
    report = analyze(Trace())
    assert report["devices"] == report["steps"] == report["survivors"] == [] and report["events"] == 0


def test_inherited_flags_in_the_wild_do_no_harm(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 8, t.line(1))
    t.alloc(0x2000, 8, t.line(1), flags=BEFORE_START)
    assert only_device(analyze(t))["start"] == 16


def test_no_file(tmp_path: Path) -> None:
    from cuptimem import _core

    with pytest.raises(_core.Error) as caught:
        _core.analyze(str(tmp_path / "absent.cmem"))
    assert str(caught.value).count("\n") == 0 and "absent.cmem" in str(caught.value)


def test_progress_can_cancel_and_errors_come_through(tmp_path: Path) -> None:
    from cuptimem import _core

    path = str(tmp_path / "large.cmem")
    _core.trace_write_synthetic(path, 3_000_000)
    seen: list[float] = []

    def stop(share: float) -> bool:
        seen.append(share)
        return False

    with pytest.raises(KeyboardInterrupt):
        _core.analyze(path, progress=stop)
    assert len(seen) == 1 and 0 <= seen[0] <= 1

    def fail(share: float) -> bool:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        _core.analyze(path, progress=fail)
