"""The whole analysis against a plain account that does the obvious thing, on random traces."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from craft import Trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_heap import OPERATION, SEEDS, Operation, Shares, play, sums_of_rows


def shares_of(rows: list[tuple[Any, ...]]) -> Shares:
    return Shares({stack: size for stack, (size, _) in sums_of_rows(rows).items()})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=st.lists(OPERATION, max_size=120), seeds=SEEDS, per_batch=st.sampled_from([1, 7, 1000]))
def test_replay_equals_the_account(
    analyze: Callable[..., dict[str, Any]], operations: list[Operation], seeds: dict[int, int], per_batch: int
) -> None:
    trace = Trace()
    heaps = play(trace, operations, seeds)
    report = analyze(trace, per_batch=per_batch)
    assert report["lost"]["unknown_frees"] == sum(heap.unknown for heap in heaps.values())
    assert report["lost"]["replaced"] == sum(heap.replaced for heap in heaps.values())
    assert {device["device"] for device in report["devices"]} == {name for name, heap in heaps.items() if heap.blocks}
    for device in report["devices"]:
        heap = heaps[device["device"]]
        _, peak, _, at_peak, _ = heap.highest()
        seeded = sum(seeds.values()) if device["device"] == "cpu" else 0
        assert (device["start"], device["peak"], device["end"]) == (seeded, peak, heap.total)
        assert shares_of(device["contributors"]) == at_peak
        assert sum(row[0] for row in device["contributors"]) == device["peak"]
        assert max(top for _, _, top, _ in device["timeline"]) == device["peak"]
        assert device["start"] + device["allocated"] - device["freed"] == device["end"]
        steps = list(pairwise([0, *heap.ticks]))
        rows = [step for step in report["steps"] if step["device"] == device["device"]]
        for step in rows:
            begin, end = steps[step["index"]]
            changes = heap.within(begin, end)
            _, highest, _, everybody, at_end = heap.highest(begin, end)
            assert (step["start"], step["peak"], step["end"]) == (sum(heap.within(-1, begin)), highest, at_end.total())
            made = [size for size in changes if size > 0]
            assert (step["allocated"], step["allocations"]) == (sum(made), len(made))
            assert step["freed"] == sum(made) - sum(changes)
            top = shares_of(step["contributors"])
            assert sum(top.values()) + step["rest"][0] == step["peak"]
            # Contributors differ by what their blocks are for, too; the rest is what is smaller than the tenth.
            assert all(top[stack] <= everybody[stack] for stack in top)
            sizes = [row[0] for row in step["contributors"]]
            assert sizes == sorted(sizes, reverse=True) and len(sizes) <= 10
            assert step["rest"][0] == 0 or len(sizes) == 10
            assert step["rest"][0] != 0 or top == everybody
        # A device is part of the steps from its first block on.
        missing = set(range(heap.first_step or 0, len(steps))) - {step["index"] for step in rows}
        assert not missing, missing
    assert sum(row[2] for row in report["survivors_at_end"]) == sum(heap.total for heap in heaps.values())
