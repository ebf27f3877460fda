"""The driver level: ledgers against an independent model, and each rule by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import craft
import pytest
from craft import BEFORE_START, DIRECT, OOM, RESERVED, SEED, SEEDED, SEGMENT_FREE, SEGMENT_NEW, WINDOW_OPEN, Trace
from driver_model import (
    ASYNC,
    CONTEXT,
    CORRELATION,
    CUDA,
    DEV,
    FAILED,
    HANDLE,
    HOST,
    LIBRARY,
    MANAGED,
    MAPPED,
    PHYSICAL,
    QUIET,
    RELEASE,
    USED,
    Driver,
)
from driver_model import RESERVED as ADDRESSES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core

Analyze = Callable[..., dict[str, Any]]
OF_NODE = 0x80
NEW, FREE, MORE, WITNESS, POOL, LAUNCH, WORK, DEVICE, HELD, FOLDED = range(22, 32)
MIB = 1 << 20


def moment(t: Trace, used: int, *, quiet: bool = True, index: int = 0, **told: int) -> None:
    where = {"device": craft.CUDA, "index": index}
    for what, value in told.items():
        t.add(DEVICE, ["total", "own", "others", "pooled", "reserved"].index(what) + 1, value, thread=9, **where)
    t.add(DEVICE, USED, used, flags=QUIET if quiet else 0, thread=9, **where)


def new(t: Trace, kind: int, address: int, size: int, line: int = 1, **more: int) -> None:
    t.add(NEW, address, size, t.line(line), flags=kind, **{**CUDA, **more})


def free(t: Trace, kind: int, address: int, size: int = 0, **more: int) -> None:
    t.add(FREE, address, size, flags=kind, **{**CUDA, **more})


def total(ledger: dict[str, Any]) -> int:
    parts = sum(ledger[key] for key in ("tensors", "rounding", "cached", "driver_rounding", "pool_slack", "residual"))
    driver = sum(line["bytes"] for line in ledger["driver"])
    return int(parts + driver + max(0, ledger["context"]) + max(0, ledger["others"]))


def only(report: dict[str, Any], what: str = "end") -> dict[str, Any]:
    (found,) = [row for row in report["ledger"] if row["what"] == what]
    assert total(found) == found["used"]
    return dict(found)


def bytes_of(report: dict[str, Any], device: int = 0) -> int:
    return next((int(row["bytes"]) for row in report["driver"]["devices"] if row["device"] == device), 0)


# --- against the model --------------------------------------------------------------------------------


def check(program: Driver, report: dict[str, Any]) -> None:
    driver = report["driver"]
    assert (driver["allocations"], driver["frees"]) == (program.allocations, program.frees)
    assert (driver["unknown_frees"], driver["failed_frees"]) == (program.unknown, program.failed)
    witness = driver["witness"]
    assert witness["matched"] == witness["records"] == program.matched
    assert witness["differ"] == witness["alone"] == 0
    assert witness["missing"] == (program.missing if program.matched else 0)

    kept = program.kept()
    assert [row["what"] for row in report["ledger"]] == list(kept)
    for row in report["ledger"]:
        expected = program.ledger(kept[row["what"]])
        lines = {(d["kind"], d["library"], d["stack"]): (d["bytes"], d["count"]) for d in row["driver"]}
        assert len(lines) == len(row["driver"]) and all(d["torch"] is False for d in row["driver"])
        assert {**{key: row[key] for key in expected if key != "driver"}, "driver": lines} == expected
        assert total(row) == row["used"] and row["context_measured"] == program.made

    for shown, host in [(driver["host"], True), *((d, False) for d in driver["devices"])]:
        lines = {(d["kind"], d["library"], d["stack"], d["torch"]): (d["bytes"], d["count"]) for d in shown["live"]}
        assert lines == program.lines_alive(host=host)
        assert shown["peak"] == (program.host_peak if host else program.peak)
        assert [d["bytes"] for d in shown["live"]] == sorted((d["bytes"] for d in shown["live"]), reverse=True)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**9), length=st.integers(1, 250), per_batch=st.sampled_from([1, 50, 1000]))
def test_the_ledger_is_the_models(analyze: Analyze, seed: int, length: int, per_batch: int) -> None:
    program = Driver(seed, length)
    check(program, analyze(program.trace, per_batch=per_batch))


def test_programs_of_every_kind(analyze: Analyze) -> None:
    kinds = set()
    for seed in range(60):
        program = Driver(seed, 300)
        report = analyze(program.trace)
        check(program, report)
        kinds |= {line["kind"] for device in report["driver"]["devices"] for line in device["live"]}
    assert kinds >= {"device", "managed", "async", "physical", "imported", "reserved", "mapped", "array"}


# --- what a trace without the driver level says -----------------------------------------------------------


def test_without_events_there_is_nothing(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 512, t.line(1), **CUDA)
    report = analyze(t)
    assert report["ledger"] == report["device_timeline"] == report["fragmentation"] == []
    assert report["kernels"] is None
    assert report["driver"] == {
        "mode": "none",
        "reason": "",
        "cupti": "",
        "allocations": 0,
        "frees": 0,
        "unknown_frees": 0,
        "failed_frees": 0,
        "replaced": 0,
        "witness": {"records": 0, "matched": 0, "missing": 0, "differ": 0, "alone": 0, "dropped": 0},
        "devices": [],
        "host": {"bytes": 0, "peak": 0, "live": []},
    }


def test_what_the_recorder_said_of_itself(tmp_path: Path) -> None:
    meta = {"driver": "slots", "driver.reason": "no CUPTI", "driver.cupti": "/x/libcupti.so.13", "driver.dropped": "7"}
    driver = _core.analyze(Trace().write(tmp_path / "t.cmem", meta=meta))["driver"]
    assert (driver["mode"], driver["reason"], driver["cupti"]) == ("slots", "no CUPTI", "/x/libcupti.so.13")
    assert driver["witness"]["dropped"] == 7


# --- whom it is charged to ---------------------------------------------------------------------------------


def test_backward_is_charged_as_blocks_are(analyze: Analyze) -> None:
    """On a thread without Python, in a hook in Python, by gradients of leaves, after the node."""
    t = Trace()
    for number in (1, 2):
        t.add(craft.THREAD, 1000 + number, 10 + number, thread=number)
    t.node(5, t.line(1))
    new(t, DEV, 0x10000, 3, line=7, thread=1)
    t.run(5, 11, thread=2)
    t.add(NEW, 0x20000, 5, 0, flags=DEV | OF_NODE, thread=2, **CUDA)
    new(t, DEV, 0x30000, 11, line=3, thread=2)
    t.done(thread=2)
    t.run(2**64 - 1, 0, "N5torch8autograd14AccumulateGradE", thread=2)
    t.add(NEW, 0x40000, 17, 0, flags=DEV | OF_NODE, thread=2, **CUDA)
    t.done(thread=2)
    t.add(NEW, 0x50000, 29, 0, flags=DEV, thread=2, **CUDA)
    moment(t, 100)
    lines = {(row["bytes"], row["stack"], row["backward"]) for row in only(analyze(t))["driver"]}
    assert lines == {
        (3, t.line(7), False),
        (5 + 17, t.line(1), True),
        (11, t.line(3), True),
        (29, 0, False),
    }


# --- contexts, pools, moments -----------------------------------------------------------------------------


def test_the_context_is_what_the_first_quiet_moment_leaves_over(analyze: Analyze) -> None:
    t = Trace()
    new(t, CONTEXT, 0xC0, 0)
    moment(t, 400, quiet=False)
    new(t, ASYNC, 0x10000, 100)
    moment(t, 500, others=50)
    moment(t, 900, others=50, own=850, total=10_000, reserved=7)
    report = analyze(t)
    end = only(report)
    assert (end["context"], end["context_measured"], end["residual"]) == (350, True, 400)
    assert (end["total"], end["own"], end["driver_reserved"]) == (10_000, 850, 7)
    first = only(analyze(t, ledger_at_ns=0), "asked")
    assert (first["used"], first["context"], first["residual"], first["quiet"]) == (400, -1, 400, False)
    assert report["device_timeline"] == [
        {"device": 0, "points": [(1024, 400, 0, -1, 0), (4096, 500, 100, -1, 0), (9216, 900, 100, -1, 0)]}
    ]


def test_what_was_there_before_a_recording_is_no_measured_context(analyze: Analyze) -> None:
    t = Trace()
    t.add(SEED, 0x200000, 1000, flags=0, **CUDA)
    t.add(SEGMENT_NEW, 0x200000, 2 * MIB, flags=BEFORE_START, **CUDA)
    t.mark(SEEDED)
    moment(t, 5 * MIB)
    end = only(analyze(t))
    assert (end["context_measured"], end["context"]) == (False, 3 * MIB)
    assert (end["tensors"], end["cached"], end["driver"]) == (1000, 2 * MIB - 1000, [])


def test_the_driver_may_be_heard_of_before_the_segments_of_before(analyze: Analyze) -> None:
    """Another thread allocates while what was there is looked up. Blocks of before are known from the beginning."""
    t = Trace()
    new(t, DEV, 0x9000000, 2 * MIB)
    t.add(SEED, 0x200000, 1000, flags=0, **CUDA)
    t.add(SEED, 0x200400, 24, flags=0, **CUDA)
    t.add(SEGMENT_NEW, 0x200000, 2 * MIB, flags=BEFORE_START, **CUDA)
    t.mark(SEEDED)
    moment(t, 5 * MIB)
    end = only(analyze(t))
    assert (end["tensors"], end["cached"], end["context"]) == (1024, 2 * MIB - 1024, MIB)
    t.free(0x200000, **CUDA)
    moment(t, 5 * MIB)
    assert only(analyze(t))["tensors"] == 24


def test_pages_that_small_allocations_share(analyze: Analyze) -> None:
    """Each page counts once, however many lie in it, and for as long as one does."""
    t = Trace()
    page = 2 * MIB
    told = []

    def look(used: int) -> None:
        moment(t, used)
        told.append(only(analyze(t)))

    moment(t, 7 * MIB)
    new(t, DEV, 8 * page, 512)
    new(t, DEV, 8 * page + 512, 1000)
    new(t, MANAGED, 9 * page - 100, 200)  # in two
    look(7 * MIB + 2 * page)
    new(t, DEV, 20 * page, 3 * page)  # whole pages
    new(t, DEV, 30 * page, page + 1)
    new(t, ASYNC, 40 * page, 5)
    look(7 * MIB + 7 * page + 5)
    free(t, 0, 8 * page)
    free(t, 0, 9 * page - 100)
    free(t, 0, 30 * page)
    t.add(MORE, 1, FAILED)
    look(7 * MIB + 6 * page + 5)
    for address in (8 * page + 512, 20 * page, 30 * page, 40 * page):
        free(t, 0, address)
    look(7 * MIB)
    assert [row["residual"] for row in told] == [0, 0, 0, 0] and {row["context"] for row in told} == {7 * MIB}
    assert [row["driver_rounding"] for row in told] == [
        2 * page - 1712,
        3 * page - 1712 - 1,
        2 * page - 1000 - 1,
        0,
    ]


def test_the_peak_is_a_quiet_moment_where_there_is_one(analyze: Analyze) -> None:
    t = Trace()
    moment(t, 900, quiet=False)
    moment(t, 300)
    moment(t, 500)
    moment(t, 200)
    report = analyze(t)
    assert [(row["what"], row["used"]) for row in report["ledger"]] == [("peak", 500), ("end", 200)]
    t = Trace()
    moment(t, 300, quiet=False)
    moment(t, 900, quiet=False)
    assert only(analyze(t), "peak")["used"] == 900


def test_the_step_of_a_moment(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1, t.line(1))
    for step in range(4):
        t.tick(craft.STEP, 0, t.line(1), after=1_000_000)
        t.alloc(0x2000 + 512 * step, 1, t.line(1))
        moment(t, 900 if step == 1 else 100)
    report = analyze(t)
    assert len(report["steps"]) == 4
    asked = [only(analyze(t, ledger_at_ns=step["end_ns"]), "asked")["step"] for step in report["steps"]]
    # The first moment is in the step that the first tick begins; after the last tick there is none.
    assert (asked, only(report, "peak")["step"], only(report)["step"]) == ([1, 2, 3, -1], 2, -1)


def test_devices_apart(analyze: Analyze) -> None:
    t = Trace()
    new(t, ASYNC, 0x10000, 100)
    new(t, ASYNC, 0x20000, 70, index=1)
    moment(t, 150)
    moment(t, 170, index=1)
    report = analyze(t)
    assert [(row["device"], row["what"], row["context"]) for row in report["ledger"]] == [
        (0, "peak", 50),
        (0, "end", 50),
        (1, "peak", 100),
        (1, "end", 100),
    ]


def test_pools_as_the_moment_tells_else_as_records_did(analyze: Analyze) -> None:
    t = Trace()
    new(t, ASYNC, 0x10000, 100)
    t.add(POOL, 0xF0, 4096, flags=4, thread=9, **CUDA)
    moment(t, 5000)
    assert only(analyze(t))["pool_slack"] == 3996
    moment(t, 5000, pooled=1000)
    assert only(analyze(t))["pool_slack"] == 900
    moment(t, 5000, pooled=30)
    short = only(analyze(t))
    assert (short["pool_slack"], short["pool_short"]) == (0, 70)
    t.add(POOL, 0xF0, 4096, flags=2, thread=9, **CUDA)  # destroyed
    free(t, ASYNC, 0x10000)
    moment(t, 5000)
    assert only(analyze(t))["pool_slack"] == 0


def test_a_context_takes_with_it_what_lives_in_it(analyze: Analyze) -> None:
    t = Trace()
    new(t, CONTEXT, 0xC0, 0)
    new(t, DEV, 0x10000, 100)
    new(t, HOST, 0x20000, 50)
    new(t, PHYSICAL, 0x7, 30)
    new(t, DEV, 0x30000, 1, index=1)
    free(t, CONTEXT, 0xC0)
    report = analyze(t)
    assert (bytes_of(report), bytes_of(report, 1), report["driver"]["host"]["bytes"]) == (30, 1, 0)
    t.add(MORE, 1, FAILED)
    report = analyze(t)
    assert (bytes_of(report), report["driver"]["host"]["bytes"]) == (130, 50)
    assert report["driver"]["failed_frees"] == 1 and report["driver"]["frees"] == 0


def test_of_two_contexts_nobody_knows_whose_is_what(analyze: Analyze) -> None:
    t = Trace()
    for context in (0xC0, 0xC1):
        new(t, CONTEXT, context, 0)
    new(t, CONTEXT, 0xC1, 0)  # told again
    new(t, DEV, 0x10000, 100)
    free(t, CONTEXT, 0xC0)
    assert bytes_of(analyze(t)) == 100
    free(t, CONTEXT, 0xC1)
    assert bytes_of(analyze(t)) == 0


# --- whose it is ------------------------------------------------------------------------------------------


def torch_of(report: dict[str, Any]) -> set[tuple[str, bool]]:
    return {(row["kind"], row["torch"]) for device in report["driver"]["devices"] for row in device["live"]}


@pytest.mark.parametrize(
    ("library", "torch"),
    [("/x/libc10_cuda.so", True), ("libtorch_cuda.so", True), ("/x/libc10.so", False), ("/libtorch/libnccl.so", False)],
)
def test_pytorchs_libraries(analyze: Analyze, library: str, torch: bool) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(MORE, 0, LIBRARY, t.name(library))
    assert torch_of(analyze(t)) == {("device", torch)}


def test_a_block_taken_from_cuda_for_itself(analyze: Analyze) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 1024)
    t.alloc(0x10000, 1024, t.line(1), flags=DIRECT, **CUDA)
    t.alloc(0x90000, 64, t.line(1), flags=DIRECT, **CUDA)  # its allocation was before the driver level was on
    moment(t, 2000)
    end = only(analyze(t))
    assert (end["tensors"], end["cached"], end["driver"]) == (1088, 0, [])
    free(t, 0, 0x10000)
    free(t, 0, 0x90000)
    for address in (0x10000, 0x90000):
        t.add(SEGMENT_FREE, address, device=craft.CUDA, index=-1)
    moment(t, 2000)
    report = analyze(t)
    assert (only(report)["tensors"], bytes_of(report), report["driver"]["unknown_frees"]) == (0, 0, 0)
    assert report["driver"]["allocations"] == 1 and report["driver"]["frees"] == 2


def test_an_address_given_out_again_before_its_block_was_told_free(analyze: Analyze) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 1024)
    t.alloc(0x10000, 1024, t.line(1), flags=DIRECT, **CUDA)
    free(t, 0, 0x10000)
    new(t, DEV, 0x10000, 512, thread=2)  # at once, to another thread
    t.add(SEGMENT_FREE, 0x10000, device=craft.CUDA, index=-1)
    moment(t, 2000)
    end = only(analyze(t))
    assert (end["tensors"], [line["bytes"] for line in end["driver"]]) == (0, [512])


def test_memory_that_is_told_late(analyze: Analyze) -> None:
    """Threads are merged by time: a block may come before the allocation that it lies in."""
    t = Trace()
    new(t, CONTEXT, 0xC0, 0)
    t.alloc(0x10000, 256, t.line(1), **CUDA)
    new(t, ASYNC, 0x10000, 256)
    moment(t, 300)
    end = only(analyze(t))
    assert (end["tensors"], end["driver"], end["context"]) == (256, [], 44)


def test_handles_live_until_released_and_mapped_nowhere(analyze: Analyze) -> None:
    t = Trace()
    new(t, ADDRESSES, 0x400000, 16 * MIB)
    new(t, PHYSICAL, 0x7, 2 * MIB)
    for at in (0x400000, 0x600000):
        new(t, MAPPED, at, 2 * MIB)
        t.add(MORE, 0x7, HANDLE)
    free(t, PHYSICAL, 0x7)
    assert bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x400000, 2 * MIB)
    assert bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x600000, MIB)  # a part
    assert bytes_of(analyze(t)) == 2 * MIB
    free(t, MAPPED, 0x400000, 16 * MIB)
    report = analyze(t)
    assert bytes_of(report) == 0 and torch_of(report) == {("reserved", False)}
    t.add(MORE, 1, FAILED)
    report = analyze(t)
    assert bytes_of(report) == 2 * MIB
    assert [row["bytes"] for row in report["driver"]["devices"][0]["live"]] == [16 * MIB, 2 * MIB, MIB]


def test_an_expandable_segment_without_its_reservation(analyze: Analyze) -> None:
    """The recording began after it was reserved: mappings that follow each other are one."""
    t = Trace()
    for i in range(2):
        new(t, PHYSICAL, 0x7 + i, 2 * MIB)
        new(t, MAPPED, 0x400000 + i * 2 * MIB, 2 * MIB)
        t.add(MORE, 0x7 + i, HANDLE)
    t.alloc(0x400000, 3 * MIB, t.line(1), **CUDA)
    moment(t, 5 * MIB)
    end = only(analyze(t))
    assert (end["tensors"], end["cached"], end["driver"], end["context"]) == (3 * MIB, MIB, [], MIB)


# --- records ----------------------------------------------------------------------------------------------


def record(t: Trace, address: int, size: int, correlation: int | None, *, library: str = "", flags: int = 0) -> None:
    t.add(WITNESS, address, size, t.name(library) if library else 0, flags=flags, thread=9, **CUDA)
    if correlation is not None:
        t.add(MORE, correlation, CORRELATION, thread=9)


def test_records_in_either_order_and_what_has_none(analyze: Analyze) -> None:
    t = Trace()
    record(t, 0x10000, 100, 1, library="liba.so")  # before its event
    new(t, DEV, 0x10000, 100)
    t.add(MORE, 1, CORRELATION)
    new(t, DEV, 0x20000, 100)
    t.add(MORE, 2, CORRELATION)
    record(t, 0x20000, 101, 2)  # of another size
    new(t, DEV, 0x30000, 100)
    t.add(MORE, 3, CORRELATION)  # missing
    record(t, 0x40000, 100, 4)  # alone
    record(t, 0x50000, 100, None)  # alone: no id
    new(t, PHYSICAL, 0x7, 100)
    t.add(MORE, 5, CORRELATION)  # has no records
    free(t, 0, 0x10000)
    t.add(MORE, 6, CORRELATION)
    record(t, 0x10000, 100, 6, flags=RELEASE)
    free(t, 0, 0x20000)
    t.add(MORE, 7, CORRELATION)
    t.add(MORE, 1, FAILED)  # so there is no record
    moment(t, 1000)
    report = analyze(t)
    witness = {"records": 5, "matched": 2, "missing": 1, "differ": 1, "alone": 2, "dropped": 0}
    assert report["driver"]["witness"] == witness


@pytest.mark.parametrize(
    ("address", "size", "index", "matched"),
    [(0x10000, 100, 0, 1), (0x20000, 100, 0, 0), (0x10000, 99, 0, 0), (0x10000, 100, 1, 0), (0x10000, 100, -1, 1)],
)
def test_what_a_record_says_otherwise(analyze: Analyze, address: int, size: int, index: int, matched: int) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(MORE, 1, CORRELATION)
    t.add(WITNESS, address, size, t.name("liba.so"), thread=9, device=craft.CUDA, index=index)
    t.add(MORE, 1, CORRELATION, thread=9)
    witness = analyze(t)["driver"]["witness"]
    assert (witness["matched"], witness["differ"], witness["missing"], witness["alone"]) == (matched, 1 - matched, 0, 0)


def test_one_id_of_several_calls(analyze: Analyze) -> None:
    t = Trace()
    for address in (0x10000, 0x20000):
        new(t, DEV, address, address)
        t.add(MORE, 1, CORRELATION)
    for address in (0x20000, 0x10000):
        record(t, address, address, 1, library=f"lib{address:x}.so")
    report = analyze(t)
    assert report["driver"]["witness"]["matched"] == 2
    live = report["driver"]["devices"][0]["live"]
    assert [(row["library"], row["bytes"]) for row in live] == [("lib20000.so", 0x20000), ("lib10000.so", 0x10000)]


def test_the_library_of_what_is_gone_reaches_the_moment_that_saw_it(analyze: Analyze) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(MORE, 1, CORRELATION)
    moment(t, 500)
    free(t, DEV, 0x10000)
    new(t, DEV, 0x10000, 7)
    record(t, 0x10000, 100, 1, library="libnccl.so")
    moment(t, 400)
    report = analyze(t)
    assert [(d["library"], d["bytes"]) for d in only(report, "peak")["driver"]] == [("libnccl.so", 100)]
    assert [(d["library"], d["bytes"]) for d in only(report, "end")["driver"]] == [("", 7)]


def test_more_calls_wait_than_are_kept(analyze: Analyze) -> None:
    t = Trace()
    count = (1 << 15) + 100
    for i in range(count):
        new(t, DEV, 0x10000, 64, line=1)
        t.add(MORE, i, CORRELATION)
        free(t, DEV, 0x10000)
    record(t, 0x10000, 64, 50)  # too late
    record(t, 0x10000, 64, 150)
    witness = analyze(t, per_batch=100_000)["driver"]["witness"]
    assert (witness["matched"], witness["alone"], witness["missing"]) == (1, 1, count - 1)
    t.mark(WINDOW_OPEN, 1)
    record(t, 0x10000, 64, 200)
    inside = analyze(t, per_batch=100_000, window=1)["driver"]["witness"]
    assert inside["matched"] == 1 and inside["missing"] < witness["missing"] - 100  # given up before


# --- fragmentation ----------------------------------------------------------------------------------------


def segment(t: Trace, address: int, size: int) -> None:
    t.add(SEGMENT_NEW, address, size, t.line(90), **CUDA)


def fragments(report: dict[str, Any], what: str) -> dict[str, Any]:
    (found,) = [row for row in report["fragmentation"] if row["what"] == what]
    return dict(found)


def test_segments_against_blocks(analyze: Analyze) -> None:
    t = Trace()
    segment(t, 0x10000000, 20 * MIB)
    segment(t, 0x20000000, 2 * MIB)
    segment(t, 0x30000000, 2 * MIB)
    t.alloc(0x10000000, 512, t.line(1), **CUDA)
    t.add(craft.REQUESTED, 0x10000000, 500, **CUDA)
    t.alloc(0x10000000 + 5 * MIB, MIB, t.line(2), **CUDA)
    t.alloc(0x30000000, 2 * MIB, t.line(1), **CUDA)
    t.add(RESERVED, 0, 24 * MIB, **CUDA)
    moment(t, 30 * MIB, total=40 * MIB)
    t.add(OOM, 0, 15 * MIB, t.line(3), **CUDA)
    t.free(0x30000000, **CUDA)
    report = analyze(t)
    assert [row["what"] for row in report["fragmentation"]] == ["peak", "oom", "end"]
    oom = fragments(report, "oom")
    assert (oom["reserved"], oom["allocated"], oom["requested"]) == (24 * MIB, 3 * MIB + 512, 3 * MIB + 500)
    assert oom["largest_free_block"] == 14 * MIB and oom["asked"] == 15 * MIB
    assert oom["free_on_device"] == 10 * MIB and oom["largest_request"] == 14 * MIB
    assert oom["empty_cache_returns"] == 2 * MIB  # the empty one; of the large one, what no granule shares:
    assert oom["expandable_returns"] == 2 * MIB + (4 - 2) * MIB + (20 - 6) * MIB
    assert [(s["address"], s["size"], s["allocated"], s["largest_free"]) for s in oom["segments"]] == [
        (0x10000000, 20 * MIB, MIB + 512, 14 * MIB)
    ]
    assert [(p["bytes"], p["count"]) for p in oom["segments"][0]["pins"]] == [(MIB, 1), (512, 1)]
    assert [(p["bytes"], p["pinned"], p["segments"]) for p in oom["pins"]] == [
        (MIB, 20 * MIB, 1),
        (512, 20 * MIB, 1),
    ]
    peak, end = fragments(report, "peak"), fragments(report, "end")
    assert (peak["free_on_device"], peak["largest_request"], peak["asked"]) == (-1, -1, -1)
    assert end["empty_cache_returns"] == 4 * MIB and end["allocated"] == MIB + 512
    assert end["largest_request"] == 14 * MIB


def test_an_expandable_segments_empty_mappings_can_go(analyze: Analyze) -> None:
    t = Trace()
    new(t, ADDRESSES, 0x10000000, 64 * MIB)
    for i in range(4):
        new(t, PHYSICAL, 0x7 + i, 2 * MIB)
        new(t, MAPPED, 0x10000000 + i * 2 * MIB, 2 * MIB)
        t.add(MORE, 0x7 + i, HANDLE)
    t.alloc(0x10000000 + MIB, 2 * MIB, t.line(1), **CUDA)
    end = fragments(analyze(t), "end")
    assert (end["reserved"], end["largest_free_block"], len(end["segments"])) == (8 * MIB, 5 * MIB, 1)
    assert end["empty_cache_returns"] == end["expandable_returns"] == 4 * MIB


def test_the_peak_of_reserved_bytes_is_the_first_of_its_height(analyze: Analyze) -> None:
    t = Trace()
    segment(t, 0x10000000, 2 * MIB)
    t.alloc(0x10000000, 512, t.line(1), **CUDA)
    t.add(RESERVED, 512, 2 * MIB, **CUDA)
    t.alloc(0x10001000, 512, t.line(1), **CUDA)
    t.add(RESERVED, 512, MIB, **CUDA)
    t.add(RESERVED, 512, 2 * MIB, **CUDA)
    assert fragments(analyze(t), "peak")["allocated"] == 512
    t.mark(WINDOW_OPEN, 1)
    t.free(0x10000000, **CUDA)
    assert fragments(analyze(t, window=1), "peak")["allocated"] == 1024


# --- work -------------------------------------------------------------------------------------------------


def work(t: Trace, correlation: int, at: int, ns: int, name: str = "kernel") -> None:
    t.events.append(craft.Event(9, 0, at, correlation, ns, t.name(name), WORK, 1, craft.CUDA, 0))


def test_blocks_that_wait_for_work(analyze: Analyze) -> None:
    ms = 1_000_000
    t = Trace()
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    begin = t.now
    t.alloc(0x1000, 512, t.line(1), **CUDA)  # used 20 ms later
    t.alloc(0x2000, 64, t.line(2), **CUDA)  # never used
    t.free(0x2000, after=15 * ms, **CUDA)
    t.alloc(0x3000, 128, t.line(3), **CUDA)  # used soon
    t.add(LAUNCH, 0x5, 2, t.line(5), flags=1, **CUDA)
    t.free(0x3000, after=40 * ms, **CUDA)  # 40 ms after the launch, 21 ms after its work
    t.free(0x1000, after=1000, **CUDA)
    t.add(LAUNCH, 0x5, 3, t.line(5), flags=1, **CUDA)  # of which no record comes
    work(t, 1, begin + 1024, 1000, "first")
    work(t, 2, begin + 20 * ms, 15 * ms, "second")
    found = analyze(t)["kernels"]
    assert (found["launches"], found["ran"], found["dropped"], found["unjudged"]) == (3, 2, 1, 0)
    assert found["wait_least_ns"] == 10 * ms
    assert [(k["name"], k["count"], k["ns"]) for k in found["names"]] == [("second", 1, 15 * ms), ("first", 1, 1000)]
    assert [(w["bytes"], w["count"], w["kernel"]) for w in found["early"]] == [(512, 1, "second")]
    assert abs(found["early"][0]["wait_ns"] - 20 * ms) < 10_000
    assert sorted((w["bytes"], w["count"], w["kernel"]) for w in found["late"]) == [
        (128, 1, "second"),
        (512, 1, "second"),
    ]
    assert found["held"] == []


def test_kernels_beyond_the_list_are_in_the_sums(analyze: Analyze) -> None:
    t = Trace()
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    for i in range(60):
        work(t, 1, t.now + i, 100 + i, f"kernel{i}")
    found = analyze(t)["kernels"]
    assert (len(found["names"]), found["names_total"]) == (50, 60)
    assert found["ns"] == sum(100 + i for i in range(60)) and found["names"][0]["ns"] == 159


def test_launches_before_the_first_record_are_not_missing(analyze: Analyze) -> None:
    t = Trace()
    for correlation in (1, 2, 3, 4):
        t.add(LAUNCH, 0x5, correlation, t.line(5), flags=1, **CUDA)
    begin = t.now
    work(t, 3, begin - 1024 + 100, 5)
    work(t, 77, begin, 5)
    work(t, 77, begin + 64, 5)  # two of one call
    found = analyze(t)["kernels"]
    assert (found["launches"], found["ran"]) == (4, 3)
    assert (found["unrecorded"], found["dropped"], found["unlaunched"]) == (2, 1, 2)


def test_work_may_be_told_before_its_launch(analyze: Analyze) -> None:
    """Two clocks are compared, and a launch is told when its stack is known. A graph's launch has several."""
    ms = 1_000_000
    t = Trace()
    t.add(LAUNCH, 0x5, 1, t.line(5), flags=1, **CUDA)
    t.alloc(0x1000, 512, t.line(1), **CUDA)
    work(t, 7, t.now + 30 * ms, 1000, "first")
    work(t, 7, t.now + 31 * ms, 1000, "second")
    work(t, 8, t.now + 31 * ms, 1000, "nobody's")
    t.add(LAUNCH, 0x5, 7, t.line(5), flags=1, after=32 * ms, **CUDA)
    found = analyze(t)["kernels"]
    assert (found["launches"], found["ran"], found["dropped"], found["unrecorded"]) == (2, 3, 0, 1)
    assert [(w["bytes"], w["count"], w["kernel"]) for w in found["early"]] == [(512, 1, "first")]
    assert abs(found["early"][0]["wait_ns"] - 30 * ms) < 10_000


def test_steps_say_how_long_a_wait_is(analyze: Analyze) -> None:
    t = Trace()
    t.alloc(0x1000, 1, t.line(1))
    for step in range(12):
        t.tick(craft.STEP, 0, t.line(1), after=50_000_000)
        t.add(LAUNCH, 0x5, step, t.line(5), flags=1, **CUDA)
    report = analyze(t)
    mean = sum(step["end_ns"] - step["begin_ns"] for step in report["steps"]) / 12
    assert len(report["steps"]) == 12 and abs(report["kernels"]["wait_least_ns"] - mean / 10) < 1000


def test_held_blocks(analyze: Analyze) -> None:
    t = Trace()
    for i in range(3):
        t.alloc(0x1000 * (i + 1), 100, t.line(1), **CUDA)
    for i in range(2):
        t.add(HELD, 0x77, thread=2)
        if i == 0:
            t.free(0x3000, **CUDA)  # another thread's is another block
        t.free(0x1000 * (i + 1), thread=2, **CUDA)
    found = analyze(t)["kernels"]
    assert [(h["bytes"], h["count"], h["stream"]) for h in found["held"]] == [(200, 2, 0x77)]
    assert found["launches"] == 0


# --- windows and folds ------------------------------------------------------------------------------------


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


def test_a_record_of_what_another_thread_freed_before_its_id_was_told(analyze: Analyze) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 100)
    new(t, DEV, 0x20000, 30, thread=3)
    free(t, DEV, 0x10000, thread=2)
    t.add(MORE, 1, CORRELATION)
    free(t, 0, 0x90000, thread=2)
    record(t, 0x10000, 100, 1, library="libnccl.so")
    live = analyze(t)["driver"]["devices"][0]["live"]
    assert [(row["library"], row["bytes"], row["count"]) for row in live] == [("", 30, 1)]


def test_pools_that_come_and_go_leave_room_for_others(analyze: Analyze) -> None:
    t = Trace()
    for number in range(300):
        t.add(POOL, 0xF000 + number, 1 << 20, flags=1, thread=9, **CUDA)
        t.add(POOL, 0xF000 + number, 0, flags=2, thread=9, **CUDA)
    t.add(POOL, 0xA0, 4096, flags=4, thread=9, **CUDA)
    moment(t, 5000)
    assert only(analyze(t))["pool_slack"] == 4096


def test_a_folds_missing_records_come_in_a_window(analyze: Analyze, tmp_path: Path) -> None:
    """Five events were left out before their records came; those come in a later stretch, inside the window."""
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(FOLDED, 5, 5, index=-1)
    t.add(FOLDED, 1, 7, index=-1)
    t.mark(WINDOW_OPEN, 1)
    new(t, DEV, 0x20000, 50)
    t.add(FOLDED, 5, -5, index=-1)
    t.add(FOLDED, 3, 5, index=-1)
    whole, cut = t.write(tmp_path / "whole.cmem"), str(tmp_path / "cut.cmem")
    _core.extract(whole, cut, 1)
    for report in (_core.analyze(whole), _core.analyze(whole, window=1), _core.analyze(cut)):
        witness = report["driver"]["witness"]
        assert (witness["records"], witness["matched"], witness["missing"]) == (5, 5, 0)
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
