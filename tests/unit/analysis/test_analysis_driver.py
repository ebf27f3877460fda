"""The driver level: ledgers against an independent model, and contexts, pools and moments by hand."""

from pathlib import Path
from typing import Any

import craft
from craft import BEFORE_START, SEEDED, Trace
from driver_model import ASYNC, CONTEXT, CUDA, DEV, FAILED, HOST, MANAGED, PHYSICAL, Driver
from driver_parts import MIB, MORE, NEW, OF_NODE, Analyze, bytes_of, free, moment, new, only, total
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuptimem import _core
from tests import event_kinds
from tests.event_kinds import POOL, SEED, SEGMENT_NEW

# --- against the model -----------------------------------------------------------------------------------------------


def check(program: Driver, report: dict[str, Any]) -> None:
    driver = report["driver"]
    assert (driver["allocations"], driver["frees"]) == (program.allocations, program.frees)
    assert (driver["unknown_frees"], driver["failed_frees"]) == (program.unknown, program.failed)
    check = driver["record_check"]
    assert check["matched"] == check["records"] == program.matched
    assert check["differ"] == check["alone"] == 0
    assert check["missing"] == (program.missing if program.matched else 0)

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


# --- what a trace without the driver level says ----------------------------------------------------------------------


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
        "record_check": {"records": 0, "matched": 0, "missing": 0, "differ": 0, "alone": 0, "dropped": 0},
        "devices": [],
        "host": {"device": "host", "bytes": 0, "peak": 0, "live": []},
    }


def test_what_the_recorder_said_of_itself(tmp_path: Path) -> None:
    meta = {"driver": "slots", "driver.reason": "no CUPTI", "driver.cupti": "/x/libcupti.so.13", "driver.dropped": "7"}
    driver = _core.analyze(Trace().write(tmp_path / "t.cmem", meta=meta))["driver"]
    assert (driver["mode"], driver["reason"], driver["cupti"]) == ("slots", "no CUPTI", "/x/libcupti.so.13")
    assert driver["record_check"]["dropped"] == 7


# --- whom it is charged to -------------------------------------------------------------------------------------------


def test_backward_is_charged_as_blocks_are(analyze: Analyze) -> None:
    """On a thread without Python, in a hook in Python, by gradients of leaves, after the node."""
    t = Trace()
    for number in (1, 2):
        t.add(event_kinds.THREAD, 1000 + number, 10 + number, thread=number)
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
    assert lines == {(3, t.line(7), False), (5 + 17, t.line(1), True), (11, t.line(3), True), (29, 0, False)}


# --- contexts, pools, moments ----------------------------------------------------------------------------------------


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
    first = only(analyze(t, ledger_at_ns=0), "asked")  # the moment before it has the context among the unexplained
    assert (first["used"], first["context"], first["residual"], first["quiet"]) == (500, 350, 0, True)
    assert report["device_timeline"] == [
        {"device": "cuda:0", "points": [(1024, 400, 0, None, 0), (4096, 500, 100, None, 0), (9216, 900, 100, None, 0)]}
    ]


def test_memory_of_the_machine_is_no_context(analyze: Analyze) -> None:
    """Of a device whose memory is the host's: all lines sum to what CUDA says of the whole machine."""
    t = Trace()
    new(t, CONTEXT, 0xC0, 0)
    moment(t, 2000, host=700, page_cache=900)
    new(t, ASYNC, 0x10000, 100)
    moment(t, 2150, host=750, page_cache=880)
    end = only(analyze(t))
    assert (end["host"], end["page_cache"], end["context"], end["residual"]) == (750, 880, 400, 20)
    assert [only(analyze(t), what)["used"] for what in ("peak", "end")] == [2150, 2150]


def test_without_a_quiet_moment_the_context_is_unknown(analyze: Analyze) -> None:
    t = Trace()
    new(t, CONTEXT, 0xC0, 0)
    moment(t, 400, quiet=False)
    moment(t, 700, quiet=False)
    first = only(analyze(t, ledger_at_ns=0), "asked")
    assert (first["used"], first["context"], first["residual"], first["quiet"]) == (400, None, 400, False)


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
    assert [row["driver_rounding"] for row in told] == [2 * page - 1712, 3 * page - 1712 - 1, 2 * page - 1000 - 1, 0]


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
    assert (asked, only(report, "peak")["step"], only(report)["step"]) == ([1, 2, 3, None], 2, None)


def test_devices_apart(analyze: Analyze) -> None:
    t = Trace()
    new(t, ASYNC, 0x10000, 100)
    new(t, ASYNC, 0x20000, 70, index=1)
    moment(t, 150)
    moment(t, 170, index=1)
    report = analyze(t)
    assert [(row["device"], row["what"], row["context"]) for row in report["ledger"]] == [
        ("cuda:0", "peak", 50),
        ("cuda:0", "end", 50),
        ("cuda:1", "peak", 100),
        ("cuda:1", "end", 100),
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


def test_pools_that_come_and_go_leave_room_for_others(analyze: Analyze) -> None:
    t = Trace()
    for number in range(300):
        t.add(POOL, 0xF000 + number, 1 << 20, flags=1, thread=9, **CUDA)
        t.add(POOL, 0xF000 + number, 0, flags=2, thread=9, **CUDA)
    t.add(POOL, 0xA0, 4096, flags=4, thread=9, **CUDA)
    moment(t, 5000)
    assert only(analyze(t))["pool_slack"] == 4096
