"""Verdicts: what leaks is named with its line and rate, and what only looks like a leak is not accused."""

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from craft import (
    BEFORE_START,
    CUDA,
    DATA,
    NODE_FREE,
    OBJECT_NEW,
    OPTIMIZER,
    THREAD,
    TORCH,
    WINDOW_CLOSE,
    WINDOW_OPEN,
    Trace,
)
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

ITERATOR = 3  # cm_object_kind
COLLECT_BEGIN, COLLECT_END, FINAL_BEGIN, FINAL_END = 5, 6, 7, 8  # cm_mark_kind
KEEP = 100  # the line that leaks, in every program below
CREATOR = 11  # autograd's number of the one thread
NODE_BYTES = 1229

Row = dict[str, Any]


class Program:
    """A training loop, event by event. Addresses are handed out anew or, like malloc's, the last freed first."""

    def __init__(self, *, reuse: bool = True) -> None:
        self.t = Trace()
        self.t.add(THREAD, 1, CREATOR)
        self.free: list[int] = []
        self.top = 0x10000
        self.reuse = reuse
        self.sequence = 0
        self.kept: list[Any] = []
        self.last: list[int] = []
        self.index = 0

    def new(self, size: int = 1000, line: int = KEEP, stack: int | None = None, device: int = 0) -> int:
        address = self.free.pop() if self.free and self.reuse else self.top
        if address == self.top:
            self.top += 64
        where = self.t.line(line) if stack is None else stack
        self.t.alloc(address, size, where, device=device, index=0 if device else -1)
        return address

    def drop(self, address: int, device: int = 0) -> None:
        self.t.free(address, device=device, index=0 if device else -1)
        self.free.append(address)

    def node(self, line: int = KEEP, stack: int | None = None) -> int:
        self.sequence += 1
        self.t.node(self.sequence, self.t.line(line) if stack is None else stack)
        return self.sequence

    def run(self, node: int) -> None:
        self.t.run(node, CREATOR)
        self.t.done()

    def end(self, node: int) -> None:
        self.t.add(NODE_FREE, node, CREATOR)

    def work(self, batch: int = 64) -> None:
        """What a step does: forward, a graph, backward, an optimizer; the last batch stays until the next step."""
        for address in self.last:
            self.drop(address)
        self.last = [self.new(batch * 16, 20)]
        blocks = [self.new(batch * 32, 21), self.new(batch * 8, 22)]
        nodes = [self.node(21), self.node(22)]
        for node in reversed(nodes):
            self.run(node)
            self.end(node)
        for address in blocks:
            self.drop(address)
        self.drop(self.new(5000, stack=self.t.stack((TORCH + "optim/adam.py", "step", 3), ("train.py", "main", 30))))

    def iterator(self, address: int = 0x77) -> None:
        self.t.add(OBJECT_NEW, address, ITERATOR, self.t.name("_SingleProcessDataLoaderIter"))

    def ask(self, address: int = 0x77, line: int = 10) -> None:
        self.t.tick(DATA, address, self.t.line(line))

    def tick(self) -> None:
        self.t.tick(OPTIMIZER, 0x99, self.t.line(30))
        self.index += 1

    def collect_at_the_end(self, garbage: list[int], *, enabled: bool = True, nodes: tuple[int, ...] = ()) -> None:
        self.t.mark(FINAL_BEGIN, int(enabled))
        self.t.mark(COLLECT_BEGIN, 2)
        for address in garbage:
            self.drop(address)
        for node in nodes:
            self.end(node)
        self.t.mark(COLLECT_END, 2)
        self.t.mark(FINAL_END)


Body = Callable[[Program, int], object]


def train(steps: int, body: Body, **how: Any) -> Program:
    p = Program(**how)
    for i in range(steps):
        p.work()
        body(p, i)
        p.tick()
    return p


@pytest.fixture
def verdicts(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    from cuptimem import _core

    count = 0

    def go(p: Program, *, window: int = 0, lost: int = 0, nodes: str = "counted") -> dict[str, Any]:
        nonlocal count
        count += 1
        path = p.t.write(tmp_path / f"{count}.cmem", meta={"nodes": nodes}, lost=lost, per_batch=20_000)
        report: dict[str, Any] = _core.analyze(path, window=window)
        for row in report["leaks"] + report["suspects"]:
            parts = row["parts"]
            assert sum(part[0] for part in parts) == row["bytes"] and sum(part[1] for part in parts) == row["count"]
            assert parts == sorted(parts, key=lambda part: -part[0])
            assert {row["stack"], *(part[2] for part in parts)} <= set(report["stacks"])
            assert row["retained"] == 0 or row["retained"] in report["stacks"]
            assert (row["confidence"] == "low") == (row["reason"] != "") == (row in report["suspects"])
        rates = [row["bytes_per_step"] for row in report["leaks"]]
        assert rates == sorted(rates, reverse=True)
        return report

    return go


def line_of(report: dict[str, Any], row: Row, which: str = "stack") -> int:
    return int(report["stacks"][row[which]][0][2])


def only(report: dict[str, Any], line: int = KEEP) -> Row:
    """The one leak there is, at that line."""
    (row,) = report["leaks"]
    assert line_of(report, row) == line
    assert isinstance(row, dict)
    return row


def reasons(report: dict[str, Any]) -> list[tuple[int, str]]:
    return sorted((line_of(report, row), row["reason"]) for row in report["suspects"])


def quiet(report: dict[str, Any]) -> bool:
    return not report["leaks"] and not report["suspects"]


# --- signature (a): survivors of all ages ---------------------------------------------------------------------


@pytest.mark.parametrize("steps", [12, 24, 48, 200])
def test_a_block_in_every_step(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    row = only(verdicts(train(steps, lambda p, i: p.kept.append(p.new(1000)))))
    assert (row["kind"], row["signature"], row["device"], row["cause"]) == ("bytes", "survivors", "cpu", "")
    assert (row["bytes"], row["count"], row["bytes_per_step"], row["count_per_step"]) == (
        1000 * steps,
        steps,
        1000.0,
        1.0,
    )
    assert (row["first_step"], row["last_step"], row["loop"]) == (0, steps - 1, "training")
    assert row["confidence"] == ("medium" if steps == 12 else "high")


def test_of_what_survives_only_the_last_steps_is_no_proof(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Every block lives on into the next step, every fifth for ever: the last one is not counted."""

    def body(p: Program, i: int) -> None:
        if i % 5 != 1:
            for address in p.kept:
                p.drop(address)
        p.kept = [p.new(700)]

    row = only(verdicts(train(49, body)))  # steps 0, 5, 10, ... 45 stay
    assert (row["count"], row["bytes"], row["bytes_per_step"]) == (10, 7000, 140.0)


@pytest.mark.parametrize(("period", "steps"), [(2, 24), (5, 48), (7, 60), (30, 300)])
def test_a_slow_leak_has_its_rate_per_step(verdicts: Callable[..., dict[str, Any]], period: int, steps: int) -> None:
    def body(p: Program, i: int) -> None:
        if i % period == 0:
            p.kept.append(p.new(1000))

    row = only(verdicts(train(steps, body)))
    assert row["bytes_per_step"] == pytest.approx(1000 / period) and row["count_per_step"] == pytest.approx(1 / period)


def test_several_blocks_of_many_sizes_in_a_step(verdicts: Callable[..., dict[str, Any]]) -> None:
    sizes = random.Random(4)
    total = 0

    def body(p: Program, i: int) -> None:
        nonlocal total
        for _ in range(3):
            size = sizes.randint(100, 900)
            total += size
            p.kept.append(p.new(size))

    row = only(verdicts(train(90, body)))
    assert row["bytes"] == total and row["count_per_step"] == 3.0
    assert row["bytes_per_step"] == pytest.approx(total / 90, rel=0.1)


def test_two_leaks_and_what_belongs_to_neither(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        p.new(100, KEEP)
        p.new(300, KEEP + 1, device=CUDA)

    report = verdicts(train(40, body))
    assert [(row["device"], line_of(report, row), row["bytes_per_step"]) for row in report["leaks"]] == [
        ("cuda:0", KEEP + 1, 300.0),
        ("cpu", KEEP, 100.0),
    ]


def test_before_the_first_step_and_after_the_last_there_is_no_leak(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = Program()
    for _ in range(50):
        p.new()
    for _ in range(30):
        p.work()
        p.tick()
    for _ in range(50):
        p.new()
    assert quiet(verdicts(p))


def test_what_dies_behind_the_last_boundary_was_alive(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(30, lambda p, i: p.kept.append(p.new()))
    for address in p.kept:
        p.drop(address)
    assert only(verdicts(p))["bytes"] == 30_000


# --- what only looks like it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [24, 48, 150])
def test_state_made_in_the_warm_up(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    assert quiet(verdicts(train(steps, lambda p, i: p.kept.append(p.new(9000)) if i < 3 else None)))


@pytest.mark.parametrize("length", [1, 2, 5, 13, 30, 40, 47])
@pytest.mark.parametrize("reuse", [True, False])
def test_a_queue(verdicts: Callable[..., dict[str, Any]], length: int, reuse: bool) -> None:
    """deque(maxlen=...), also one that is full only just before the end."""
    queue: deque[int] = deque()

    def body(p: Program, i: int) -> None:
        queue.append(p.new())
        if len(queue) > length:
            p.drop(queue.popleft())

    assert quiet(verdicts(train(48, body, reuse=reuse)))


@pytest.mark.parametrize("length", [5, 20, 35])
@pytest.mark.parametrize("seed", range(5))
def test_a_buffer_that_replaces_at_random(verdicts: Callable[..., dict[str, Any]], length: int, seed: int) -> None:
    chance, buffer = random.Random(seed), list[int]()

    def body(p: Program, i: int) -> None:
        new = p.new()
        if len(buffer) < length:
            buffer.append(new)
        else:
            slot = chance.randrange(length)
            p.drop(buffer[slot])
            buffer[slot] = new

    assert not verdicts(train(60, body))["leaks"]


@pytest.mark.parametrize("period", [5, 16, 20, 23])
def test_a_list_that_is_cleared_now_and_then(verdicts: Callable[..., dict[str, Any]], period: int) -> None:
    """Epochs without a data loader, reports every so many steps, the collector's saw-tooth."""

    def body(p: Program, i: int) -> None:
        if i % period == 0:
            for address in p.kept:
                p.drop(address)
            p.kept = []
        p.kept.append(p.new())

    assert not verdicts(train(60, body))["leaks"]


def test_a_leak_beside_a_queue_on_the_same_stack(verdicts: Callable[..., dict[str, Any]]) -> None:
    queue: deque[int] = deque()

    def body(p: Program, i: int) -> None:
        p.new(500)
        queue.append(p.new(1000))
        if len(queue) > 6:
            p.drop(queue.popleft())

    row = only(verdicts(train(60, body)))
    assert row["bytes_per_step"] == pytest.approx(500, rel=0.1) and row["confidence"] == "medium"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("steps", "shapes"), [(48, 16), (60, 12), (150, 40)])
def test_a_cache_that_fills(verdicts: Callable[..., dict[str, Any]], steps: int, shapes: int, seed: int) -> None:
    chance, cache = random.Random(seed), set[int]()

    def body(p: Program, i: int) -> None:
        shape = chance.randrange(shapes)
        if shape not in cache:
            cache.add(shape)
            p.new(64 * (shape + 1))

    report = verdicts(train(steps, body))
    assert not report["leaks"]
    assert all(reason in ("stopped", "few births") for _, reason in reasons(report))


def test_a_late_large_block_is_none(verdicts: Callable[..., dict[str, Any]]) -> None:
    assert quiet(verdicts(train(48, lambda p, i: p.new(1 << 20) if i == 30 else None)))


def test_a_checkpoint_that_replaces_the_one_before(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        if i % 6 == 5:
            fresh = [p.new(4000, KEEP + k) for k in range(4)]
            for address in p.kept:
                p.drop(address)
            p.kept = fresh

    assert quiet(verdicts(train(90, body)))


def test_batches_fetched_ahead_by_another_thread(verdicts: Callable[..., dict[str, Any]]) -> None:
    queue: deque[int] = deque()
    sizes = random.Random(1)

    def body(p: Program, i: int) -> None:
        while len(queue) < 8:
            p.top += 64
            queue.append(p.top)
            p.t.alloc(p.top, 64 * sizes.randint(1, 40), p.t.line(KEEP), thread=2)
        p.t.free(queue.popleft(), thread=1)

    assert quiet(verdicts(train(60, body)))


def test_lengths_that_vary_and_batches_that_stay(verdicts: Callable[..., dict[str, Any]]) -> None:
    for seed in range(6):
        chance, p = random.Random(seed), Program()
        for _ in range(40):
            p.work(chance.randint(8, 200))
            p.tick()
        assert quiet(verdicts(p))


# --- late, slow, stopped, few ---------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", [10, 20, 26, 36])
def test_a_leak_that_begins_late(verdicts: Callable[..., dict[str, Any]], begin: int) -> None:
    row = only(verdicts(train(48, lambda p, i: p.new() if i >= begin else None)))
    assert row["bytes_per_step"] == 1000.0 and row["first_step"] == begin
    assert row["confidence"] == ("high" if begin < 20 else "medium")


def test_a_late_leak_behind_a_stray_survivor(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(train(60, lambda p, i: p.new() if i == 10 or i > 40 else None)))
    assert row["bytes_per_step"] == 1000.0


def test_a_leak_at_the_very_end_is_only_suspected(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(train(60, lambda p, i: p.new() if i > 53 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]


def test_growth_that_stops(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(train(60, lambda p, i: p.new() if i < 30 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "stopped")]


def test_few_births(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(train(48, lambda p, i: p.new() if i % 10 == 0 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]
    assert quiet(verdicts(train(48, lambda p, i: p.new() if i in (15, 40) else None)))


def test_a_leak_in_one_branch(verdicts: Callable[..., dict[str, Any]]) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        row = only(verdicts(train(150, lambda p, i, c=chance: p.new() if c.random() < 0.3 else None)))
        assert row["count_per_step"] == pytest.approx(row["count"] / 150, rel=0.15)


# --- signature (b): a live set that grows ---------------------------------------------------------------------


def cat(p: Program, size: int, line: int = KEEP) -> None:
    """x = torch.cat([x, new])"""
    fresh = p.new(size, line)
    for address in p.kept:
        p.drop(address)
    p.kept = [fresh]


@pytest.mark.parametrize("steps", [20, 48, 64, 65, 128, 500])
def test_one_ever_larger_block(verdicts: Callable[..., dict[str, Any]], steps: int) -> None:
    row = only(verdicts(train(steps, lambda p, i: cat(p, 400 * (i + 1)))))
    assert row["signature"] == "growing" and row["confidence"] == "medium"
    assert row["bytes_per_step"] == pytest.approx(400.0) and (row["count"], row["bytes"]) == (1, 400 * steps)
    assert row["first_step"] == 0


def test_one_larger_block_every_few_steps(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(train(60, lambda p, i: cat(p, 400 * (i + 5)) if i % 5 == 0 else None)))
    assert row["signature"] == "growing" and row["bytes_per_step"] == pytest.approx(400, rel=0.1)


def test_a_list_that_is_copied_with_each_addition(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        fresh = [p.new(100) for _ in range(i + 1)]
        for address in p.kept:
            p.drop(address)
        p.kept = fresh

    row = only(verdicts(train(40, body)))
    assert row["signature"] == "growing" and row["bytes_per_step"] == pytest.approx(100)


def test_a_larger_block_from_late_on(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(train(60, lambda p, i: cat(p, 400 * max(i - 30, 1)))))
    assert row["bytes_per_step"] == pytest.approx(400)


@pytest.mark.parametrize("start", [1, 8, 32])
@pytest.mark.parametrize("rise", [1, 2, 5])
def test_a_curriculum_is_not_accused_of_its_last_batch(
    verdicts: Callable[..., dict[str, Any]], start: int, rise: int
) -> None:
    p = Program()
    for i in range(48):
        p.work(start + rise * i)
        p.tick()
    assert quiet(verdicts(p))


def test_a_growing_block_in_a_curriculum_of_constant_batches(verdicts: Callable[..., dict[str, Any]]) -> None:
    """What is computed from the growing block grows with it; the model's own lines do not."""

    def body(p: Program, i: int) -> None:
        cat(p, 400 * (i + 1))
        p.drop(p.new(400 * (i + 1), KEEP + 1))

    only(verdicts(train(48, body)))


def test_a_block_that_is_cut_back(verdicts: Callable[..., dict[str, Any]]) -> None:
    assert quiet(verdicts(train(60, lambda p, i: cat(p, 400 * (i % 20 + 1)))))
    assert quiet(verdicts(train(60, lambda p, i: cat(p, 400 * (min(i, 30) + 1)))))


# --- stacks and lines -----------------------------------------------------------------------------------------


class Forgetful(dict[Any, int]):
    """Has forgotten what was defined, but goes on counting."""

    def __init__(self, old: dict[Any, int], *keep: Any) -> None:
        super().__init__({key: old[key] for key in keep})
        self.forgotten = len(old) - len(keep)

    def __len__(self) -> int:
        return super().__len__() + self.forgotten


def test_the_same_stack_under_many_ids(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Other modules, other code objects, defined again: one stack, one row."""

    def body(p: Program, i: int) -> None:
        if i % 10 == 9:  # all code was loaded anew
            p.t.strings = Forgetful(p.t.strings)
            p.t.codes = Forgetful(p.t.codes)
            p.t.stacks = Forgetful(p.t.stacks, ())
        call = (TORCH + "nn/modules/module.py", "Module._wrapped_call_impl", 1775, 0x7000 + 64 * i, "Linear")
        p.new(stack=p.t.stack((TORCH + "nn/functional.py", "linear", 5), call, ("train.py", "main", KEEP)))

    row = only(verdicts(train(40, body)), 5)
    assert row["count"] == 40 and len(row["parts"]) == 1


def test_many_stacks_of_one_line_of_the_user(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Recursion to another depth in each step: only the line has survivors of all ages."""

    def body(p: Program, i: int) -> None:
        inside = (TORCH + "nn/functional.py", "linear", 5)
        p.new(stack=p.t.stack(inside, *[("tree.py", "walk", KEEP)] * (1 + i % 9), ("train.py", "main", 9)))

    report = verdicts(train(45, body))
    (row,) = report["leaks"]
    assert row["count"] == 45 and len(row["parts"]) == 9 and row["bytes_per_step"] == 1000.0
    assert row["stack"] == row["parts"][0][2] and quiet({**report, "leaks": []})


def test_a_stack_that_has_its_own_row_is_not_in_its_lines(verdicts: Callable[..., dict[str, Any]]) -> None:
    def body(p: Program, i: int) -> None:
        p.new(1000, stack=p.t.stack(("util.py", "keep", KEEP), ("train.py", "main", 1)))
        deep = [("util.py", "keep", KEEP)] * (2 + i % 9)
        p.new(10, stack=p.t.stack(*deep, ("train.py", "main", 2)))

    report = verdicts(train(54, body))
    assert [(row["bytes_per_step"], len(row["parts"])) for row in report["leaks"]] == [(1000.0, 1), (10.0, 9)]


def test_lines_of_libraries_are_not_the_users(verdicts: Callable[..., dict[str, Any]]) -> None:
    """Nine callers of one line in an installed package, few births each: nine lines, nothing to accuse."""

    def body(p: Program, i: int) -> None:
        inside = ("/venv/lib/python3.11/site-packages/tools/keep.py", "keep", KEEP)
        if i % 2 == 0:
            p.new(stack=p.t.stack(inside, ("train.py", "main", 200 + i // 2 % 9)))

    report = verdicts(train(60, body))
    assert not report["leaks"] and {reason for _, reason in reasons(report)} == {"few births"}


def test_blocks_without_a_stack(verdicts: Callable[..., dict[str, Any]]) -> None:
    (row,) = verdicts(train(40, lambda p, i: p.t.alloc(0x900000 + 64 * i, 77)))["leaks"]
    assert (row["stack"], row["bytes"]) == (0, 77 * 40)


# --- loops and epochs -----------------------------------------------------------------------------------------


def epochs(
    count: int, batches: int, body: Body, *, evaluate: Body | None = None, both: Callable[[Program], None] | None = None
) -> Program:
    """Training with a data loader, and after each epoch an evaluation of as many batches."""
    p = Program()
    i = j = 0
    for _ in range(count):
        p.iterator(0x77)
        if both is not None:
            both(p)
        for _ in range(batches):
            p.ask(0x77)
            p.work()
            body(p, i)
            p.tick()
            i += 1
        p.ask(0x77)  # nothing more
        if evaluate is not None:
            p.iterator(0x88)
            for _ in range(batches):
                p.ask(0x88, 40)
                p.drop(p.new(640, 41))
                evaluate(p, j)
                j += 1
            p.ask(0x88, 40)
    return p


def test_in_evaluation_only(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = epochs(5, 12, lambda p, i: None, evaluate=lambda p, j: p.kept.append(p.new(250)))
    report = verdicts(p)
    assert {step["loop"] for step in report["steps"]} == {"training", "evaluation"}
    row = only(report)
    assert row["loop"] == "evaluation" and row["bytes_per_step"] == pytest.approx(250, rel=0.05)


def test_in_training_between_evaluations(verdicts: Callable[..., dict[str, Any]]) -> None:
    row = only(verdicts(epochs(5, 12, lambda p, i: p.kept.append(p.new(250)), evaluate=lambda p, j: None)))
    assert row["loop"] == "training" and row["bytes_per_step"] == pytest.approx(250, rel=0.05)
    assert row["count"] == 60


def test_judged_at_the_end_of_its_loop(verdicts: Callable[..., dict[str, Any]]) -> None:
    """The list dies while the other loop still runs: it was alive at its own loop's last boundary."""
    p = epochs(4, 10, lambda p, i: p.kept.append(p.new(250)), evaluate=lambda p, j: None)
    for address in p.kept:
        p.drop(address)
    p.kept = []
    for _ in range(30):
        p.ask(0x88, 40)
        p.drop(p.new(640, 41))
    assert only(verdicts(p))["loop"] == "training"


def test_one_epoch_cannot_tell(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(epochs(1, 40, lambda p, i: p.kept.append(p.new())))
    assert not report["leaks"] and reasons(report) == [(KEEP, "one epoch")]
    report = verdicts(epochs(1, 40, lambda p, i: cat(p, 400 * (i + 1))))
    assert not report["leaks"] and reasons(report) == [(KEEP, "one epoch")]


def test_two_epochs_can(verdicts: Callable[..., dict[str, Any]]) -> None:
    assert only(verdicts(epochs(2, 20, lambda p, i: p.kept.append(p.new()))))["bytes"] == 40_000
    assert only(verdicts(epochs(3, 16, lambda p, i: cat(p, 400 * (i + 1)))))["signature"] == "growing"


def test_a_list_per_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    def clear(p: Program) -> None:
        for address in p.kept:
            p.drop(address)
        p.kept = []

    for count, batches in [(2, 20), (3, 16), (5, 12)]:
        p = epochs(count, batches, lambda p, i: p.kept.append(p.new()), both=clear)
        assert not verdicts(p)["leaks"]
        p = epochs(count, batches, lambda p, i: cat(p, 400 * (i % batches + 1)), both=clear)  # noqa: B023
        assert not verdicts(p)["leaks"]


def test_a_tensor_kept_per_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    report = verdicts(epochs(10, 8, lambda p, i: p.kept.append(p.new(4)) if i % 8 == 7 else None))
    assert not report["leaks"] and reasons(report) == [(KEEP, "few births")]


def test_two_loaders_drawn_from_side_by_side_are_one_epoch(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = Program()
    p.iterator(0x77)
    p.iterator(0x78)
    for _ in range(40):
        p.ask(0x77)
        p.ask(0x78)
        p.work()
        p.kept.append(p.new())
        p.tick()
    assert reasons(verdicts(p)) == [(KEEP, "one epoch")]


# --- collections ----------------------------------------------------------------------------------------------


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


# --- what was lost --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lost", "leaks"), [(0, 1), (5, 1), (10, 0), (400, 0)])
def test_lost_events_may_explain_it(verdicts: Callable[..., dict[str, Any]], lost: int, leaks: int) -> None:
    report = verdicts(train(40, lambda p, i: p.new()), lost=lost)
    assert len(report["leaks"]) == leaks and reasons(report) == [(KEEP, "events lost")] * (1 - leaks)


def test_frees_that_went_missing(verdicts: Callable[..., dict[str, Any]]) -> None:
    p = train(40, lambda p, i: p.new())
    for address in range(0x10000, 0x10000 + 64 * 30, 64):
        p.t.alloc(address, 8, p.t.line(1))  # taken, says the trace
    report = verdicts(p)
    assert report["lost"]["replaced"] >= 25 and reasons(report) == [(KEEP, "events lost")]


# --- graph nodes ----------------------------------------------------------------------------------------------


def forward(p: Program, *, keep: bool, lines: tuple[int, ...] = (50, 51, 52)) -> list[int]:
    nodes = [p.node(line) for line in lines]
    for node in reversed(nodes):
        p.run(node)
    if not keep:
        for node in nodes:
            p.end(node)
    return nodes


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


# --- windows --------------------------------------------------------------------------------------------------


def test_a_window_sees_what_its_own_trace_says(tmp_path: Path) -> None:
    """Births before it are none of it; its steps count from its start."""
    from cuptimem import _core

    p = Program()
    for i in range(90):
        if i == 30:
            p.t.mark(WINDOW_OPEN, 1)
        if i == 70:
            p.t.mark(WINDOW_CLOSE, 1)
        p.work()
        p.new(1000)
        p.new(10, KEEP + 1) if i < 30 else p.drop(p.new(10, KEEP + 1))
        forward(p, keep=True)
        p.tick()
    source, target = p.t.write(tmp_path / "whole.cmem", meta={"nodes": "counted"}), str(tmp_path / "window.cmem")
    _core.extract(source, target, 1)
    seen = []
    for report in (_core.analyze(source, window=1), _core.analyze(target)):
        rows = []
        for row in report["leaks"] + report["suspects"]:
            frames = {key: tuple(map(tuple, report["stacks"][row[key]])) for key in ("stack", "retained") if row[key]}
            parts = [(size, count, tuple(map(tuple, report["stacks"][s]))) for size, count, s in row["parts"]]
            rows.append({**row, **frames, "parts": parts})
        seen.append((rows, report["live_nodes"]))
    assert seen[0] == seen[1]
    rows, live = seen[0]
    assert [(row["kind"], row["bytes_per_step"]) for row in rows] == [("nodes", 3.0 * NODE_BYTES), ("bytes", 1000.0)]
    assert live == 3 * 40 and rows[1]["count"] == 40 and BEFORE_START == 4


# --- whatever the numbers are -----------------------------------------------------------------------------------


SETTINGS = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SETTINGS
@given(
    steps=st.integers(12, 400),
    size=st.integers(1, 300),
    rate=st.integers(1, 3),
    every=st.integers(1, 9),
    chunk=st.integers(1, 40),
    scale=st.integers(1, 1000),
    seed=st.integers(0, 10**6),
)
def test_no_bounded_buffer_is_accused(
    verdicts: Callable[..., dict[str, Any]],
    steps: int,
    size: int,
    rate: int,
    every: int,
    chunk: int,
    scale: int,
    seed: int,
) -> None:
    """First in, first out, of any length and rate, that drops one or many at a time once it is full."""
    assume(rate * (steps // every) > size)  # one that is never full is a leak as far as it was seen
    queue: deque[int] = deque()
    p, chance = Program(), random.Random(seed)
    for i in range(steps):
        p.drop(p.new(64, 20))
        p.end(p.node(20))
        for _ in range(rate if i % every == 0 else 0):
            queue.append(p.new(scale * chance.randint(1, 4)))
        if len(queue) > size:
            for _ in range(min(max(chunk, len(queue) - size), len(queue))):
                p.drop(queue.popleft())
        p.tick()
    assert not verdicts(p)["leaks"]


@SETTINGS
@given(
    period=st.integers(1, 40),
    births=st.integers(9, 60),
    begin=st.integers(0, 30),
    rest=st.integers(0, 39),
    size=st.integers(1, 10**9),
    count=st.integers(1, 3),
)
def test_a_constant_leak_is_found_with_its_exact_rate(
    verdicts: Callable[..., dict[str, Any]], period: int, births: int, begin: int, rest: int, size: int, count: int
) -> None:
    p = Program()
    steps = begin % period + (births - 1) * period + 1 + rest % period
    assume(steps >= 12)
    for i in range(steps):
        p.drop(p.new(64, 20))
        p.end(p.node(20))
        for _ in range(count if i % period == begin % period else 0):
            p.new(size)
        p.tick()
    row = only(verdicts(p))
    assert row["bytes_per_step"] == pytest.approx(count * size / period, rel=1e-9)
    assert (row["count"], row["bytes"]) == (count * births, count * births * size)


@SETTINGS
@given(
    steps=st.integers(30, 300),
    begin=st.floats(0.0, 0.75),
    size=st.integers(1, 10**6),
    noise=st.integers(1000, 10**7),
    seed=st.integers(0, 10**6),
)
def test_a_late_leak_is_found_under_any_noise(
    verdicts: Callable[..., dict[str, Any]], steps: int, begin: float, size: int, noise: int, seed: int
) -> None:
    """Batches of any size that stay until the next step, in front of a leak from any moment on."""
    p, chance = Program(), random.Random(seed)
    first, last = int(begin * steps), 0
    for i in range(steps):
        if last:
            p.drop(last)
        last = p.new(chance.randint(1, noise), 20)
        p.end(p.node(20))
        if i >= first:
            p.new(size)
        p.tick()
    row = only(verdicts(p))
    assert row["bytes_per_step"] == size and row["count"] == steps - first


@SETTINGS
@given(
    steps=st.integers(24, 200),
    size=st.integers(1, 60),
    seed=st.integers(0, 10**6),
)
def test_no_full_random_buffer_is_accused(
    verdicts: Callable[..., dict[str, Any]], steps: int, size: int, seed: int
) -> None:
    """One that replaces a random entry, and has been full for a third of the time."""
    assume(size <= steps * 2 // 3)
    chance, buffer, p = random.Random(seed), list[int](), Program()
    for _ in range(steps):
        p.drop(p.new(64, 20))
        p.end(p.node(20))
        buffer.append(p.new())
        if len(buffer) > size:
            p.drop(buffer.pop(chance.randrange(len(buffer))))
        p.tick()
    assert not verdicts(p)["leaks"]
