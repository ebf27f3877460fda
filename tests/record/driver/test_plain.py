"""CUDA without PyTorch: every allocation of a C library and of ctypes, with its library and Python line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.on_device.simulated import device_log, driver_events, foreign
from tests.record.driver.conftest import Ran

HERE = str(Path(__file__).with_name("programs.py"))
MIB = 1 << 20
GENERATIONS = ["11.8", "12.1", "12.6", "13.0", "13.2", "13.3", "13.5"]
RUN = ("-m", "cuptimem", "run", "-o", "{trace}")

Program = Callable[..., Ran]


def lines(ran: Ran) -> dict[tuple[str, int], tuple[int, tuple[str, int], str]]:
    """Kind and address -> size, line, library, of the last one there."""
    driver = ran.driver
    names = driver_events.libraries(driver)
    return {
        (event.kind, event.address): (event.size, event.line, names[index])
        for index, event in enumerate(driver.events)
        if event.new
    }


def is_what_the_device_did(ran: Ran) -> dict[str, int]:
    found = ran.match()
    assert found.differ == []
    return dict(found.events)


def given_is_recorded(ran: Ran) -> None:
    """What work() was given, where it says that it asked for it."""
    recorded = lines(ran)
    kinds = {"mapped": ("mapped", "reserved"), "driver": ("device",), "other": ("device",)}
    for name, (address, at, size) in ran.printed["kept"].items():
        for kind in kinds.get(name, (name,)):
            assert recorded[kind, address] == (size, (HERE, at), foreign.NAME), name
    handle = ran.printed["handle"]
    assert recorded["physical", handle] == (8 * MIB, (HERE, ran.printed["kept"]["mapped"][1]), foreign.NAME)
    assert recorded["device", ran.printed["thread"]] == (12 * MIB, ("", 0), foreign.NAME)


def test_a_profile(program: Program) -> None:
    ran = program("plain")
    events = is_what_the_device_did(ran)
    assert events["device"] == 50 + 5 + 3 and events["free"] == 50 + 4
    assert {
        kind: events[kind] for kind in ("managed", "host", "async", "physical", "mapped", "reserved")
    } == dict.fromkeys(("managed", "host", "async", "physical", "mapped", "reserved"), 1)
    given_is_recorded(ran)


def test_under_run(program: Program) -> None:
    ran = program("plain", under=RUN, env={"PROGRAM_RECORDED": "1"})
    is_what_the_device_did(ran)
    given_is_recorded(ran)
    assert ran.meta()["driver"] == "callbacks"


def test_the_ledger_adds_up(program: Program) -> None:
    """used == context + what the library has, to the byte."""
    ran = program("plain")
    report = ran.analyze()
    (used,) = device_log.report(ran.report)
    (device,) = report["driver"]["devices"]
    assert device["device"] == "cuda:0"
    kept = ran.match().bytes(0)
    rows = [row for row in report["ledger"] if row["what"] == "end"]
    (row,) = rows
    assert row["used"] == used.used and row["total"] == 8 << 30
    assert row["context"] == used.context and row["residual"] == 0
    owned = sum(one["bytes"] for one in row["driver"])
    assert owned == kept + 6 * MIB == device["bytes"]
    assert row["used"] == owned + row["driver_rounding"] + row["pool_slack"] + row["context"] + max(row["others"], 0)
    assert {one["library"] for one in row["driver"]} == {foreign.NAME}


def test_ctypes(program: Program) -> None:
    ran = program("by_ctypes")
    is_what_the_device_did(ran)
    size, where, library = lines(ran)["device", ran.printed["address"]]
    assert (size, where) == (6 * MIB, (HERE, ran.printed["line"]))
    assert library.startswith(("libffi", "_ctypes", "libpython", "python")), library


@pytest.mark.parametrize("generation", GENERATIONS)
def test_generations(generation: str, program: Program) -> None:
    ran = program("plain", cupti=generation)
    events = is_what_the_device_did(ran)
    assert events["device"] == 58
    given_is_recorded(ran)
    report = ran.analyze()["driver"]
    assert report["mode"] == "callbacks" and report["unknown_frees"] == 0
    check = report["record_check"]
    assert check["matched"] > 100, check
    assert (check["missing"], check["differ"], check["alone"], check["dropped"]) == (0, 0, 0, 0)


def test_no_callback_waits_for_the_gil(program: Program) -> None:
    ran = program("held_gil")
    assert ran.printed["ended"], "the thread did not end while the GIL was held"
    assert is_what_the_device_did(ran)["device"] == 2001


def test_children(program: Program) -> None:
    ran = program("forked")
    assert ran.printed["codes"] == [0, 3, 0, 0]
    assert is_what_the_device_did(ran)["device"] == 5


def test_a_second_recording(program: Program) -> None:
    ran = program("twice")
    found = ran.match(since=ran.printed["began"])
    assert found.differ == [] and found.events["device"] == 1 and found.events["free"] == 2
    assert ran.analyze()["driver"]["allocations"] == 1


def test_windows(program: Program) -> None:
    ran = program("windows")
    is_what_the_device_did(ran)
    inner = Ran(ran.result, ran.trace.with_name("inner.cmem"), ran.log, ran.report).analyze()["driver"]
    assert inner["allocations"] == 1 and inner["frees"] == 1
    (device,) = inner["devices"]
    assert device["bytes"] == 4 * MIB and device["peak"] == 6 * MIB


def test_past_the_bound(program: Program) -> None:
    """Allocations that come and go become sums (compact/compact.h), which count as before; what is alive stays.
    How much is left out depends on CUPTI's records, most of which a thread that gets no processor drops."""
    ran = program("bounded")
    assert ran.printed["above"] > 1 and ran.printed["lost"] == 0
    driver, kept = ran.analyze()["driver"], ran.printed["kept"]
    assert (driver["allocations"], driver["frees"], driver["unknown_frees"]) == (40_000, 40_000 - len(kept), 0)
    assert (driver["replaced"], driver["record_check"]["differ"]) == (0, 0)
    (device,) = driver["devices"]
    assert device["bytes"] == 2 * MIB * len(kept) and device["peak"] == device["bytes"] + 2 * MIB
    live = {(row["library"], row["bytes"], row["count"]) for row in device["live"]}
    assert live == {(foreign.NAME, device["bytes"], len(kept))}
    assert set(kept) <= {event.address for event in ran.driver.events if event.new}


def test_killed(program: Program) -> None:
    ran = program("killed", code=-9)
    found = ran.match()
    assert found.differ == [] and found.events["device"] == 58
    recorded = {(event.kind, event.address): event.line for event in ran.driver.events if event.new}
    for name, (address, at, _) in ran.printed["kept"].items():
        kind = {"driver": "device", "other": "device"}.get(name, name)
        assert recorded[kind, address] == (HERE, at), name


def test_threads_across_starts_and_stops(program: Program) -> None:
    ran = program("threads")
    assert ran.driver.events, "the last recording saw nothing"
    report = ran.analyze()["driver"]
    assert report["allocations"] > 200 and set(ran.printed["lost"]) == {0}
    for event in ran.driver.events:
        assert event.frames == () or event.line[0] == HERE
