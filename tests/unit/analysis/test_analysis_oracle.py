"""The whole analysis against forty lines of Python that do the obvious thing, on random traces."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from craft import CUDA, SEEDED, STEP, Trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.event_kinds import ALLOC, FREE, SEED, TICK

STACKS = 14

ADDRESSES = st.integers(1, 12).map(lambda n: n * 64)
DEVICES = st.sampled_from([(0, -1), (0, -1), (CUDA, 0)])
OPERATION = st.one_of(
    st.tuples(st.just(ALLOC), ADDRESSES, st.integers(1, 999), st.integers(0, STACKS - 1), DEVICES),
    st.tuples(st.just(ALLOC), ADDRESSES, st.integers(1, 999), st.integers(0, STACKS - 1), DEVICES),
    st.tuples(st.just(FREE), ADDRESSES, st.just(0), st.just(0), DEVICES),
    st.tuples(st.just(TICK), st.just(1), st.just(STEP), st.just(0), st.just((0, -1))),
)
SEEDS = st.dictionaries(ADDRESSES, st.integers(1, 999), max_size=4)


class Oracle:
    """One device: a dict of live blocks, and a full copy of what is alive at every new maximum."""

    def __init__(self, live: dict[int, tuple[int, int | None]]) -> None:
        self.live = dict(live)  # address -> (size, stack)
        self.start = self.peak = self.total
        self.at_peak = self.shares
        self.steps: list[tuple[int, ...]] = []
        self.step_shares: list[Counter[int | None]] = []
        self.begin_step()

    @property
    def total(self) -> int:
        return sum(size for size, _ in self.live.values())

    @property
    def shares(self) -> "Counter[int | None]":
        shares: Counter[int | None] = Counter()
        for size, stack in self.live.values():
            shares[stack] += size
        return shares

    def begin_step(self) -> None:
        self.step_start = self.step_peak = self.total
        self.step_at_peak = self.shares
        self.allocated = self.freed = self.allocations = 0

    def end_step(self) -> None:
        self.steps.append((self.step_start, self.step_peak, self.total, self.allocated, self.freed, self.allocations))
        self.step_shares.append(self.step_at_peak)
        self.begin_step()

    def change(self, kind: int, address: int, size: int, stack: int) -> bool:
        gone = self.live.pop(address, None)
        self.freed += gone[0] if gone else 0
        if kind == ALLOC:
            self.live[address] = (size, stack)
            self.allocated += size
            self.allocations += 1
            # A block that is replaced goes first, so the maximum is the one after both.
            if self.total > self.peak:
                self.peak, self.at_peak = self.total, self.shares
            if self.total > self.step_peak:
                self.step_peak, self.step_at_peak = self.total, self.shares
        return gone is not None


def shares_of(rows: list[tuple[Any, ...]]) -> "Counter[int | None]":
    shares: Counter[int | None] = Counter()
    for size, _, stack, _, phase, *_ in rows:
        shares[None if phase == "before start" else stack] += size
    return shares


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, max_size=120), seeds=SEEDS, per_batch=st.sampled_from([1, 7, 1000]))
def test_replay_equals_the_oracle(
    analyze: Callable[..., dict[str, Any]],
    operations: list[tuple[int, int, int, int, tuple[int, int]]],
    seeds: dict[int, int],
    per_batch: int,
) -> None:
    trace = Trace()
    for address, size in seeds.items():
        trace.add(SEED, address, size)
    trace.mark(SEEDED)
    oracles = {
        "cpu": Oracle({address: (size, None) for address, size in seeds.items()}),
        "cuda:0": Oracle({}),
    }
    seen = {"cpu"} if seeds else set()
    first_step: dict[str, int] = {}
    steps = unknown = replaced = 0
    for kind, address, size, line, (device_type, index) in operations:
        trace.add(kind, address, size, trace.line(line), device=device_type, index=index)
        if kind == TICK:
            steps += 1
            for oracle in oracles.values():
                oracle.end_step()
            continue
        device = "cpu" if device_type == 0 else "cuda:0"
        if device not in seen and kind == ALLOC:
            seen.add(device)
            first_step[device] = steps
        known = oracles[device].change(kind, address, size, trace.line(line))
        unknown += kind == FREE and not known
        replaced += kind == ALLOC and known

    report = analyze(trace, per_batch=per_batch)
    assert report["lost"]["unknown_frees"] == unknown and report["lost"]["replaced"] == replaced
    # A device is part of the steps from its first block on.
    with_blocks = {device["device"] for device in report["devices"]}
    assert with_blocks == seen
    for device in report["devices"]:
        oracle = oracles[device["device"]]
        assert (device["start"], device["peak"], device["end"]) == (oracle.start, oracle.peak, oracle.total)
        assert shares_of(device["contributors"]) == +oracle.at_peak
        assert sum(row[0] for row in device["contributors"]) == device["peak"]
        assert max(top for _, _, top, _ in device["timeline"]) == device["peak"]
        assert device["start"] + device["allocated"] - device["freed"] == device["end"]
        rows = [step for step in report["steps"] if step["device"] == device["device"]]
        for step in rows:
            expected = oracle.steps[step["index"]]
            names = ("start", "peak", "end", "allocated", "freed", "allocations")
            assert tuple(step[name] for name in names) == expected
            everybody = oracle.step_shares[step["index"]]
            top = shares_of(step["contributors"])
            assert sum(top.values()) + step["rest"][0] == step["peak"]
            # Contributors differ by what their blocks are for, too; the rest is what is smaller than the tenth.
            assert all(top[stack] <= everybody[stack] for stack in top)
            sizes = [row[0] for row in step["contributors"]]
            assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 10
            assert step["rest"][0] == 0 or len(sizes) == 10
            assert step["rest"][0] != 0 or top == +everybody
        missing = set(range(first_step.get(device["device"], 0), steps)) - {step["index"] for step in rows}
        assert not missing, missing
    alive = Counter[tuple[str, int | None]]()
    for name, oracle in oracles.items():
        for stack, size in oracle.shares.items():
            alive[name, stack] += size
    assert sum(row[2] for row in report["survivors_at_end"]) == sum(alive.values())
