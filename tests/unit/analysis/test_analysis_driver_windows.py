"""The driver level in the files of windows, and after a fold."""

from pathlib import Path
from typing import Any

from craft import WINDOW_OPEN, Trace
from driver_model import CUDA, DEV, FAILED, HANDLE, MAPPED, PHYSICAL, Driver
from driver_model import RESERVED as ADDRESSES
from driver_parts import MIB, MORE, Analyze, bytes_of, free, new, total, work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core
from tests.event_kinds import COMPACTED_DRIVER, LAUNCH, WORK


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), before=st.integers(1, 120), inside=st.integers(0, 60))
def test_a_windows_file_says_what_the_window_said(tmp_path: Path, seed: int, before: int, inside: int) -> None:
    program = Driver(seed, before)
    program.made = False
    program.trace.mark(WINDOW_OPEN, 1)
    for _ in range(inside):
        program.step()
    whole, cut = str(tmp_path / "whole.cmem"), tmp_path / "cut.cmem"
    for path in tmp_path.iterdir():
        path.unlink()
    program.trace.write(Path(whole))
    _core.extract(whole, str(cut), 1)
    one, other = _core.analyze(whole, window=1), _core.analyze(str(cut))

    def shown(report: dict[str, Any]) -> Any:
        found = []
        for device in [*report["driver"]["devices"], report["driver"]["host"]]:
            rows = [(r["kind"], r["library"], r["bytes"], r["count"], r["torch"]) for r in device["live"]]
            found.append((device["bytes"], device["peak"], sorted(rows)))
        return [report["driver"][key] for key in ("allocations", "frees", "unknown_frees", "failed_frees")], [
            row for row in found if row[1] or row[2]
        ]

    # What no allocation was told of lies on no device.
    if one["driver"]["devices"] and other["driver"]["devices"]:
        assert shown(other) == shown(one)
    for row in other["ledger"]:
        assert total(row) == row["used"]
    summed = [[row[key] for key in ("what", "used", "tensors", "rounding", "cached")] for row in one["ledger"]]
    assert summed == [
        [row[key] for key in ("what", "used", "tensors", "rounding", "cached")] for row in other["ledger"]
    ]


def test_a_released_handles_value_is_given_out_again_before_a_window(analyze: Analyze, tmp_path: Path) -> None:
    """What is released but still mapped lives on under a value that is another's by now."""
    t = Trace()
    new(t, ADDRESSES, 0x400000, 16 * MIB)
    for at in (0x400000, 0x600000, 0x800000):
        new(t, PHYSICAL, 0x7, 2 * MIB, line=at >> 21)
        new(t, MAPPED, at, 2 * MIB)
        t.add(MORE, 0x7, HANDLE)
        if at < 0x800000:
            free(t, PHYSICAL, 0x7)
    t.mark(WINDOW_OPEN, 1)
    free(t, MAPPED, 0x400000, 2 * MIB)
    whole, cut = t.write(tmp_path / "whole.cmem"), str(tmp_path / "cut.cmem")
    _core.extract(whole, cut, 1)
    for report in (_core.analyze(whole, window=1), _core.analyze(cut)):
        assert bytes_of(report) == 4 * MIB and report["driver"]["devices"][0]["peak"] == 6 * MIB


def test_a_folds_missing_records_come_in_a_window(analyze: Analyze, tmp_path: Path) -> None:
    """Five events were left out before their records came; those come in a later stretch, inside the window."""
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(COMPACTED_DRIVER, 5, 5, index=-1)
    t.add(COMPACTED_DRIVER, 1, 7, index=-1)
    t.mark(WINDOW_OPEN, 1)
    new(t, DEV, 0x20000, 50)
    t.add(COMPACTED_DRIVER, 5, -5, index=-1)
    t.add(COMPACTED_DRIVER, 3, 5, index=-1)
    whole, cut = t.write(tmp_path / "whole.cmem"), str(tmp_path / "cut.cmem")
    _core.extract(whole, cut, 1)
    for report in (_core.analyze(whole), _core.analyze(whole, window=1), _core.analyze(cut)):
        check = report["driver"]["record_check"]
        assert (check["records"], check["matched"], check["missing"]) == (5, 5, 0)
    assert _core.analyze(whole)["driver"]["allocations"] == 9


def test_blocks_of_a_folded_stretch_wait_for_nothing(analyze: Analyze) -> None:
    """Their launches are sums: neither the next one that is told whole nor the last before is theirs."""
    ms = 1_000_000
    t = Trace()
    t.alloc(0x1000, 10, t.line(1), **CUDA)
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    t.add(LAUNCH, 0x5, 2, t.line(5), flags=1, **CUDA)
    work(t, 1, t.now, 1000)
    t.alloc(0x2000, 20, t.line(2), after=50 * ms, **CUDA)
    t.free(0x1000, **CUDA)
    t.add(LAUNCH, 0, 100, flags=0x81, **CUDA)
    t.add(WORK, 100, 5 * ms, t.name("kernel"), flags=0x81, thread=9, **CUDA)  # that of 2, and not that of the last
    t.alloc(0x3000, 30, t.line(3), after=50 * ms, **CUDA)
    t.add(LAUNCH, 0x5, 200, t.line(5), flags=1, **CUDA)
    work(t, 199, t.now + ms, 1000)
    work(t, 200, t.now + 30 * ms, 1000)
    t.free(0x3000, after=90 * ms, **CUDA)
    found = analyze(t)["kernels"]
    assert [(w["bytes"], w["count"]) for w in found["early"]] == [(30, 1)]
    assert [(w["bytes"], w["count"]) for w in found["late"]] == [(30, 1)]
    assert (found["launches"], found["ran"]) == (103, 103)
    assert (found["unrecorded"], found["dropped"], found["unlaunched"]) == (1, 0, 0)


def test_a_handle_that_is_alive_after_all_takes_no_value_back(analyze: Analyze) -> None:
    """Its last mapping was not taken away; its value is another's by now, and stays that one's."""
    t = Trace()
    new(t, ADDRESSES, 0x400000, 16 * MIB)
    for at in (0x400000, 0x600000):
        new(t, PHYSICAL, 0x7, 2 * MIB)
        new(t, MAPPED, at, 2 * MIB)
        t.add(MORE, 0x7, HANDLE)
        if at == 0x400000:
            free(t, PHYSICAL, 0x7)
    free(t, MAPPED, 0x400000, 2 * MIB)
    t.add(MORE, 1, FAILED)
    free(t, MAPPED, 0x400000, 2 * MIB)
    free(t, PHYSICAL, 0x7)
    assert analyze(t)["driver"]["unknown_frees"] == 0 and bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x600000, 2 * MIB)
    assert bytes_of(analyze(t)) == 0
