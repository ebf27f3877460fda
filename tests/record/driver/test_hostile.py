"""CUPTI at its worst (cudasim/csrc/cupti/cupti_hostile.c): what was given out is counted right all the same, what was
lost is counted, and what is missing is named."""

from collections.abc import Callable

import pytest

from tests.record.driver.conftest import Ran
from tests.record.driver.test_plain import given_is_recorded, is_what_the_device_did

Program = Callable[..., Ran]
DEVICES = 58  # of kind "device" that work() is given


@pytest.mark.parametrize("generation", ["11.8", "13.0", "13.3"])
@pytest.mark.parametrize("hostile", ["reorder", "wrap", "late", "foreign", "reorder,wrap,late,foreign", "arrays"])
def test_what_only_looks_wrong_changes_nothing(hostile: str, generation: str, program: Program) -> None:
    """Every allocation with its line and library, every record matched."""
    ran = program("plain", hostile=hostile, cupti=generation)
    assert is_what_the_device_did(ran)["device"] == DEVICES
    given_is_recorded(ran)
    found = ran.analyze()["driver"]
    check = found["record_check"]
    assert found["mode"] == "callbacks" and check["matched"] > 100
    assert (check["missing"], check["differ"], check["alone"], check["dropped"]) == (0, 0, 0, 0)
    foreign = int(ran.meta()["driver.foreign_buffers"])
    assert (foreign > 0) == ("foreign" in hostile)


@pytest.mark.parametrize("generation", ["11.8", "13.0", "13.3"])
def test_lost_records_are_counted(generation: str, program: Program) -> None:
    """No allocation is lost with them: only whose it was, and that is said."""
    ran = program("plain", hostile="drop=10", cupti=generation)
    assert is_what_the_device_did(ran)["device"] == DEVICES
    check = ran.analyze()["driver"]["record_check"]
    assert 5 < check["missing"] <= check["dropped"], "records of pools are among those that are dropped"
    assert (check["differ"], check["alone"]) == (0, 0)
    assert check["matched"] == check["records"]


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        ("taken", "Nsight Systems"),
        ("taken=somebody", "somebody"),
        ("refuse=15", "driver"),
        ("refuse=35", "administrator"),
        ("refuse=43", "MIG"),
        ("refuse=41", "onfidential"),
        ("refuse=999", "driver"),
        ("nodriver", "driver"),
    ],
)
def test_a_refusal_is_named_and_slots_go_on(hostile: str, said: str, program: Program) -> None:
    """Calls that the library makes by relocation slots are known with line and library; what it looked up itself is
    not, and nothing else is made up."""
    ran = program("plain", hostile=hostile)
    found = ran.analyze()["driver"]
    assert found["mode"] == "slots" and said in found["reason"], found["reason"]
    assert ran.meta()["driver"] == "slots"
    seen = ran.driver.events
    assert seen and all(event.by_slot for event in seen)
    kept = {name: row[0] for name, row in ran.printed["kept"].items()}
    recorded = {(event.kind, event.address): event for event in seen if event.new}
    for name in ("device", "managed", "host", "async", "other"):
        kind = "device" if name == "other" else name
        event = recorded[kind, kept[name]]
        assert event.size == ran.printed["kept"][name][2] and event.line[1] == ran.printed["kept"][name][1]
        assert event.library == "libforeign.so"
    assert ("device", kept["driver"]) not in recorded, "looked up by dlsym: no slot sees it"
    counts = ran.match()
    assert counts.events["unknown free"] == 0
    assert all(kept[name] for name in kept)
    assert all(f"{address:#x}" in " ".join(counts.differ) for address in (kept["driver"], kept["mapped"]))


def test_time_that_changes_its_base(program: Program) -> None:
    """Events have our own clock; records that came with another one are still matched by id."""
    ran = program("plain", hostile="timebase=60")
    assert is_what_the_device_did(ran)["device"] == DEVICES
    assert ran.meta()["driver.time_base_changed"] == "yes"
    check = ran.analyze()["driver"]["record_check"]
    assert (check["missing"], check["differ"], check["alone"]) == (0, 0, 0)


def test_a_slow_subscription_loses_nothing(program: Program) -> None:
    """What slots saw until it came, and callbacks from then on, are one history."""
    ran = program("plain", hostile="slow=1500")
    found = ran.analyze()["driver"]
    kept = ran.printed["kept"]
    recorded = {event.address for event in ran.driver.events if event.new}
    assert {kept[name][0] for name in ("device", "managed", "host", "async", "other")} <= recorded
    assert found["unknown_frees"] == 0
    assert found["mode"] == "callbacks" and "took CUPTI 1." in found["reason"], "what only callbacks see was not"


def test_a_driver_too_old_for_several_subscribers(program: Program) -> None:
    """It says that somebody else has it: the interface for one alone still works."""
    ran = program("plain", hostile="olddriver", cupti="13.3")
    assert is_what_the_device_did(ran)["device"] == DEVICES
    assert ran.meta()["driver.interface"] == "single"


@pytest.mark.parametrize("generation", ["11.8", "12.6"])
def test_a_release_that_dies_without_a_buffer_gets_one(generation: str, program: Program) -> None:
    ran = program("plain", hostile="nullbuffer", cupti=generation)
    assert is_what_the_device_did(ran)["device"] == DEVICES


def test_the_release_that_dies_of_a_walk_alone(program: Program) -> None:
    ran = program("plain", hostile="crash", cupti="13.2")
    assert is_what_the_device_did(ran)["device"] == DEVICES
    assert ran.analyze()["driver"]["record_check"]["matched"] > 100


def test_all_of_it_under_threads(program: Program) -> None:
    ran = program("threads", hostile="drop=7,reorder,wrap,late,foreign")
    assert set(ran.printed["lost"]) == {0}
    found = ran.analyze()["driver"]
    assert found["allocations"] > 200
    assert found["unknown_frees"] <= 8, "of each thread the one that it had when recording began"
