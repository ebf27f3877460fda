"""The driver level: records of CUPTI that come early, late, twice or not at all."""

import craft
import pytest
from craft import WINDOW_OPEN, Trace
from driver_model import CORRELATION, CUDA, DEV, FAILED, PHYSICAL, RELEASE
from driver_parts import MORE, Analyze, free, moment, new, only

from tests.event_kinds import COMPACTED_DRIVER, DRIVER_RECORD


def record(t: Trace, address: int, size: int, correlation: int | None, *, library: str = "", flags: int = 0) -> None:
    t.add(DRIVER_RECORD, address, size, t.name(library) if library else 0, flags=flags, thread=9, **CUDA)
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
    check = {"records": 5, "matched": 2, "missing": 1, "differ": 1, "alone": 2, "dropped": 0}
    assert report["driver"]["record_check"] == check


@pytest.mark.parametrize(
    ("address", "size", "index", "matched"),
    [(0x10000, 100, 0, 1), (0x20000, 100, 0, 0), (0x10000, 99, 0, 0), (0x10000, 100, 1, 0), (0x10000, 100, -1, 1)],
)
def test_what_a_record_says_otherwise(analyze: Analyze, address: int, size: int, index: int, matched: int) -> None:
    t = Trace()
    new(t, DEV, 0x10000, 100)
    t.add(MORE, 1, CORRELATION)
    t.add(DRIVER_RECORD, address, size, t.name("liba.so"), thread=9, device=craft.CUDA, index=index)
    t.add(MORE, 1, CORRELATION, thread=9)
    check = analyze(t)["driver"]["record_check"]
    assert (check["matched"], check["differ"], check["missing"], check["alone"]) == (matched, 1 - matched, 0, 0)


def test_one_id_of_several_calls(analyze: Analyze) -> None:
    t = Trace()
    for address in (0x10000, 0x20000):
        new(t, DEV, address, address)
        t.add(MORE, 1, CORRELATION)
    for address in (0x20000, 0x10000):
        record(t, address, address, 1, library=f"lib{address:x}.so")
    report = analyze(t)
    assert report["driver"]["record_check"]["matched"] == 2
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


def test_records_of_what_is_in_sums_are_not_alone(analyze: Analyze) -> None:
    """A killed program leaves them behind the compacted part: as many as events lack theirs, of calls until then."""
    t = Trace()
    t.add(COMPACTED_DRIVER, 5, 3, index=-1)
    t.add(COMPACTED_DRIVER, 6, 1 + 2, index=-1)  # the newest of the three has this id, behind a wrap
    record(t, 0x10000, 100, 2**32 - 1)
    record(t, 0x10000, 100, 3)  # alone: of a call that came later
    record(t, 0x10000, 100, 2)
    new(t, DEV, 0x20000, 100)
    t.add(MORE, 4, CORRELATION)
    record(t, 0x20000, 100, 4)
    check = {"records": 4, "matched": 1, "missing": 1, "differ": 0, "alone": 1, "dropped": 0}
    assert analyze(t)["driver"]["record_check"] == check
    record(t, 0x10000, 100, 1)
    record(t, 0x10000, 100, 0)  # one too many
    check |= {"records": 6, "missing": 0, "alone": 2}
    assert analyze(t)["driver"]["record_check"] == check


def test_more_calls_wait_than_are_kept(analyze: Analyze) -> None:
    t = Trace()
    count = (1 << 15) + 100
    for i in range(count):
        new(t, DEV, 0x10000, 64, line=1)
        t.add(MORE, i, CORRELATION)
        free(t, DEV, 0x10000)
    record(t, 0x10000, 64, 50)  # too late
    record(t, 0x10000, 64, 150)
    check = analyze(t, per_batch=100_000)["driver"]["record_check"]
    assert (check["matched"], check["alone"], check["missing"]) == (1, 1, count - 1)
    t.mark(WINDOW_OPEN, 1)
    record(t, 0x10000, 64, 200)
    inside = analyze(t, per_batch=100_000, window=1)["driver"]["record_check"]
    assert inside["matched"] == 1 and inside["missing"] < check["missing"] - 100  # given up before


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
