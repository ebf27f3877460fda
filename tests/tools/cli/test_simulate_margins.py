"""The margins of a verdict of `cuptimem simulate`: the context's interval, the smallest memory, one run, the card."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cuptimem.output.text import text
from cuptimem.report.fragmentation import Fragmentation
from cuptimem.simulation import as_json, assemble
from cuptimem.simulation import views as simulate_views
from cuptimem.simulation.cards import card
from cuptimem.simulation.environment import TorchBuild
from cuptimem.simulation.facts import Facts
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.questions import NO_LIMIT, Answer, Inquiry, Wishes
from cuptimem.simulation.result import Interval, Simulation, Smallest
from tests.tools.cli import simulated_runs as runs
from tests.tools.cli.simulated_runs import ASSERT, GIB, OOM, facts

MIB = 1 << 20
OPEN = Setup(card("h100"), 24 * GIB)  # its context is 450 to 700 MiB, and 512 MiB in a run
LOW, MIDDLE, HIGH = 450 * MIB, 512 * MIB, 700 * MIB
CONVOLUTION = (runs.modelled("cuDNN convolution workspace", 0),)
FULL = {"exit_code": 1, "chain": (OOM,), "refused": 2, "oom_events": 1}
BUILD = TorchBuild("2.14.1", "13.0", None)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are seen from there."""
    monkeypatch.setattr(os, "getcwd", lambda: "/home")


def ask(
    program: Callable[[Setup], Facts], setup: Setup = OPEN, **wishes: Any
) -> tuple[Answer, list[str], dict[str, Setup]]:
    """The answer, the names of the runs, and the setup of each."""
    setups: dict[str, Setup] = {}

    def run(wanted: Setup, name: str) -> Facts:
        setups[name] = wanted
        return program(wanted)

    return Inquiry(run, setup, Wishes(**wishes), {}).answer(), list(setups), setups


def made(answer: Answer, setup: Setup = OPEN) -> Simulation:
    return assemble.simulation(answer, setup, BUILD, ())


def taking(reserved: int, tensors: int, setup: Setup, **more: Any) -> Facts:
    """A run whose segments take `reserved` beside the context; PyTorch goes on with `tensors` where it must."""
    each = setup.context_range.middle
    if tensors + each > setup.memory:
        return with_context(facts(setup, **{**FULL, "used": setup.memory, "allocated": tensors, **more}), each)
    squeezed = reserved + each > setup.memory
    found = facts(
        setup,
        used=min(setup.memory, reserved + each),
        allocated=tensors,
        retries=int(squeezed),
        refused=int(squeezed),
        **more,
    )
    return with_context(found, each)


def with_context(found: Facts, each: int) -> Facts:
    return replace(found, devices=tuple(replace(device, context=each) for device in found.devices))


# --- the context, after a run that fits --------------------------------------------------------------------------


def test_a_larger_context_is_arithmetic_where_it_finds_room():
    answer, asked, _ = ask(lambda setup: taking(10 * GIB, 8 * GIB, setup))
    assert (answer.verdict, asked) == ("fits", ["as asked"])
    assert answer.reason == "13.3 GiB of cuda:0 stay free at its peak"
    (device,) = made(answer).devices
    assert device.used == Interval(10 * GIB + LOW, 10 * GIB + HIGH)
    assert (device.context, device.context_range) == (MIDDLE, Interval(LOW, HIGH))
    assert device.allocated == Interval(8 * GIB, 8 * GIB)


def test_a_larger_context_fits_to_the_byte():
    at_limit = 24 * GIB - HIGH
    answer, asked, _ = ask(lambda setup: facts(setup, used=at_limit + MIDDLE, allocated=at_limit))
    assert (answer.verdict, asked) == ("fits", ["as asked"])
    answer, asked, _ = ask(lambda setup: facts(setup, used=at_limit + MIDDLE + 1, allocated=at_limit))
    assert asked[:2] == ["as asked", "context of 700.0 MiB"]


def test_a_larger_context_without_room_is_run():
    """PyTorch may empty its cache for it."""
    answer, asked, setups = ask(lambda setup: taking(24 * GIB - MIDDLE, 20 * GIB, setup))
    assert answer.verdict == "fits" and asked[1] == "context of 700.0 MiB"
    assert setups[asked[1]] == replace(OPEN, context=HIGH)
    assert answer.reason == "0 B of cuda:0 stay free at its peak"
    assert made(answer).devices[0].used == Interval(24 * GIB - MIDDLE + LOW, 24 * GIB)


@pytest.mark.parametrize("more", [{"retries": 1}, {"refused": 1}])
def test_arithmetic_decides_nothing_where_something_was_refused(more):
    answer, asked, _ = ask(lambda setup: facts(setup, **({} if setup.context else more)))
    assert (answer.verdict, asked[1]) == ("fits", "context of 700.0 MiB")


def test_what_does_not_fit_with_a_larger_context_is_undecided():
    tensors = 24 * GIB - 600 * MIB
    answer, asked, _ = ask(lambda setup: taking(tensors, tensors, setup))
    assert (answer.verdict, asked) == ("undecided", ["as asked", "context of 700.0 MiB"])
    assert answer.reason == (
        "it fits with a CUDA context of 512.0 MiB; with one of 700.0 MiB, the highest published for h100, it does not"
    )
    assert answer.hints == ("say what you know: --context SIZE",)
    assert made(answer).devices[0].used == Interval(tensors + LOW, tensors + HIGH)


def test_a_program_that_fails_with_a_larger_context():
    def program(setup: Setup) -> Facts:
        if setup.context is None:
            return facts(setup, used=24 * GIB)
        return facts(setup, exit_code=1, chain=(ASSERT,))

    answer, _, _ = ask(program)
    assert answer.verdict == "undecided" and answer.reason.endswith(
        "it failed: AssertionError: loss is zero at u/train.py:30"
    )


def test_a_context_that_the_user_gave_has_no_ends():
    given = replace(OPEN, context=MIDDLE)
    answer, asked, _ = ask(lambda setup: facts(setup, used=24 * GIB, allocated=24 * GIB - MIDDLE), given)
    assert (answer.verdict, asked) == ("fits", ["as asked"])
    assert made(answer, given).devices[0].used == Interval(24 * GIB, 24 * GIB)
    assert made(answer, given).devices[0].context_range == Interval(MIDDLE, MIDDLE)


def test_the_high_end_has_the_largest_context_too():
    _, asked, setups = ask(lambda setup: facts(setup, modelled=CONVOLUTION))
    assert asked == ["as asked", "high end"] and setups["high end"] == replace(OPEN, high_end=True, context=HIGH)


def test_each_process_has_a_context():
    shared = facts(used=4 * GIB)
    (device,) = shared.devices
    shared = replace(shared, devices=(replace(device, context=3 * MIDDLE, processes=3),), processes=3)
    answer, asked, _ = ask(lambda setup: replace(shared, run=replace(shared.run, setup=setup)))
    assert asked == ["as asked"]
    (use,) = made(answer).devices
    assert use.used == Interval(4 * GIB - 3 * (MIDDLE - LOW), 4 * GIB + 3 * (HIGH - MIDDLE))
    assert made(answer).modelled[0].bytes == 3 * LOW and made(answer).modelled[0].high_bytes == 3 * HIGH


def test_the_context_is_an_interval_in_every_form():
    answer, _, _ = ask(lambda setup: facts(setup, modelled=(runs.modelled("CUDA context", MIDDLE),)))
    result = made(answer)
    assert [(row.name, row.bytes, row.high_bytes) for row in result.modelled] == [("CUDA context", LOW, HIGH)]
    assert "  CUDA context  450.0 to 700.0 MiB\n" in str(result)
    written = as_json.simulate(result)
    assert written["devices"][0]["context_range"] == {"low": LOW, "high": HIGH}
    assert written["devices"][0]["context"] == MIDDLE


# --- the context, after a run that does not fit ------------------------------------------------------------------


def test_what_would_fit_with_a_smaller_context_is_undecided():
    """By arithmetic: without a limit it took no more than there is then."""
    tensors = 24 * GIB - 500 * MIB
    answer, asked, _ = ask(lambda setup: taking(tensors, tensors, setup))
    assert answer.verdict == "undecided" and not any(name.startswith("context") for name in asked)
    assert answer.reason == (
        "out of memory at u/train.py:30 with a CUDA context of 512.0 MiB; with one of 450.0 MiB, the lowest published "
        "for h100, it fits"
    )
    assert answer.hints[0].startswith("--context SIZE")
    assert answer.need is not None and (answer.need.low, answer.need.high) == (tensors + LOW, tensors + HIGH)


def test_what_might_fit_with_a_smaller_context_is_run():
    tensors = 24 * GIB - 500 * MIB
    answer, asked, setups = ask(lambda setup: taking(25 * GIB, tensors, setup))
    assert answer.verdict == "undecided" and asked[-1] == "context of 450.0 MiB"
    assert setups[asked[-1]] == replace(OPEN, context=LOW)


def test_tensors_that_find_no_room_with_any_context():
    tensors = 24 * GIB - LOW + 1
    answer, asked, _ = ask(lambda setup: taking(tensors, tensors, setup))
    assert answer.verdict == "does not fit" and not any("context" in name for name in asked)
    assert answer.need is not None and answer.need.low == 24 * GIB + 1


def test_a_smaller_context_that_is_no_help():
    def program(setup: Setup) -> Facts:
        return (
            facts(setup, **{**FULL, "used": setup.memory}) if setup.memory == 24 * GIB else facts(setup, used=25 * GIB)
        )

    answer, asked, _ = ask(program)
    assert answer.verdict == "does not fit" and asked[-1] == "context of 450.0 MiB"


def test_a_program_that_sizes_itself_is_run_with_a_smaller_context():
    """Without a limit it took less than there is, and did not fit all the same."""
    answer, asked, _ = ask(lambda setup: facts(setup, **({} if setup.memory == NO_LIMIT else FULL)))
    assert answer.verdict == "does not fit" and asked[-1] == "context of 450.0 MiB"


def test_a_setting_that_fits_is_worth_more_than_a_smaller_context():
    tensors = 24 * GIB - 800 * MIB

    def program(setup: Setup) -> Facts:
        fits = setup.memory == NO_LIMIT or setup.alloc_conf == "expandable_segments:True" or setup.context == LOW
        used = tensors + setup.context_range.middle
        found = facts(setup, used=used, allocated=tensors, settings=setup.alloc_conf or "", modelled=())
        return found if fits else facts(setup, **{**FULL, "used": 24 * GIB})

    answer, asked, _ = ask(program)
    assert answer.verdict == "fits with settings" and not any("context" in name for name in asked)


def test_a_setting_must_hold_with_a_larger_context():
    tensors = 24 * GIB - 600 * MIB

    def program(setup: Setup) -> Facts:
        if setup.memory != NO_LIMIT and (setup.alloc_conf != "expandable_segments:True" or setup.context == HIGH):
            return facts(setup, **{**FULL, "used": 24 * GIB})
        return facts(setup, used=tensors + MIDDLE, allocated=tensors, settings=setup.alloc_conf or "")

    answer, asked, setups = ask(program)
    assert answer.setting is None
    name = "PYTORCH_ALLOC_CONF=expandable_segments:True, context of 700.0 MiB"
    assert name in asked and setups[name].context == HIGH


def test_larger_workspaces_are_tried_with_a_smaller_context():
    def program(setup: Setup) -> Facts:
        found = taking(25 * GIB, 20 * GIB, setup, modelled=CONVOLUTION)
        return found if setup.memory != 24 * GIB or setup.high_end else facts(setup, **{**FULL, "used": 24 * GIB})

    answer, asked, setups = ask(program)
    assert answer.verdict == "undecided" and asked[-1] == "high end, context of 450.0 MiB"
    assert setups[asked[-1]] == replace(OPEN, high_end=True, context=LOW)


# --- one run -----------------------------------------------------------------------------------------------------


def lacking(size: int, setup: Setup) -> Facts:
    """A run that was out of memory by so much."""
    found = facts(setup, **{**FULL, "used": 24 * GIB})
    asked = 2 * GIB
    memory = Fragmentation(
        "cuda:0", "oom", 5, 20 * GIB, 19 * GIB, 19 * GIB, asked, 0, 0, asked - size, asked - size, 0, 0, 0, (), ()
    )
    assert memory.lacked == size and found.report is not None
    report = replace(found.report, devices=tuple(with_ooms(device, memory) for device in found.report.devices))
    return replace(found, report=report)


def with_ooms(device: Any, memory: Fragmentation) -> Any:
    return replace(device, ooms=tuple(replace(one, memory=memory) for one in device.ooms))


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(MIDDLE - LOW, "undecided"), (MIDDLE - LOW + 1, "does not fit"), (5, "undecided")],
)
def test_one_run_that_lacks_less_than_a_smaller_context_leaves(size, verdict):
    answer, asked, _ = ask(lambda setup: lacking(size, setup), retry=False)
    assert (answer.verdict, asked) == (verdict, ["as asked"])
    assert ("450.0 MiB, the lowest published for h100" in answer.reason) is (verdict == "undecided")


def test_one_run_that_lacks_nobody_knows_what():
    answer, _, _ = ask(lambda setup: facts(setup, **{**FULL, "used": 24 * GIB}), retry=False)
    assert answer.verdict == "does not fit"
    given = replace(OPEN, context=MIDDLE)
    assert ask(lambda setup: lacking(5, setup), given, retry=False)[0].verdict == "does not fit"


def test_one_run_decides_where_arithmetic_has_room_for_a_larger_context():
    assert ask(lambda setup: facts(setup), retry=False)[0].verdict == "fits"
    answer, asked, _ = ask(lambda setup: facts(setup, used=24 * GIB - 1, allocated=20 * GIB), retry=False)
    assert (answer.verdict, asked) == ("undecided", ["as asked"])
    assert answer.reason.endswith("the highest published for h100, it was not run (--no-retry)")


def test_one_run_decides_where_all_workspaces_find_room():
    """Four times its tensors: an element of one byte in single precision."""

    def program(room: int) -> Callable[[Setup], Facts]:
        used = 24 * GIB - (HIGH - MIDDLE) - 4 * GIB - room
        return lambda setup: facts(setup, used=used, allocated=GIB, modelled=CONVOLUTION)

    answer, asked, _ = ask(program(0), retry=False)
    assert (answer.verdict, asked) == ("fits", ["as asked"])
    assert answer.reason == "4.0 GiB of cuda:0 stay free at its peak, more than cuDNN's workspaces can take"
    answer, _, _ = ask(program(-1), retry=False)
    assert answer.verdict == "undecided"
    low = "it fits with the low end of cuDNN convolution workspace and a CUDA context of 512.0 MiB"
    assert answer.reason == f"{low}; the high end was not run (--no-retry)"


@pytest.mark.parametrize(
    "more",
    [
        {"modelled": (*CONVOLUTION, runs.modelled("memory that waits for an event", 0))},
        {"modelled": CONVOLUTION, "assumptions": (runs.assumption(),)},
    ],
)
def test_one_run_leaves_open_what_has_no_bound(more):
    answer, _, _ = ask(lambda setup: facts(setup, used=GIB, allocated=1, **more), retry=False)
    assert answer.verdict == "undecided" and "the high end was not run" in answer.reason


# --- the smallest memory -----------------------------------------------------------------------------------------


def test_the_smallest_memory_is_an_interval_where_much_is_free():
    answer, asked, _ = ask(lambda setup: taking(10 * GIB, 8 * GIB, setup))
    assert asked == ["as asked"]
    assert answer.smallest_memory == Smallest("cuda:0", 8 * GIB + HIGH, 10 * GIB + HIGH)
    assert "\n  the smallest memory in which it fits: 8.7 to 10.7 GiB\n" in str(made(answer))
    written = as_json.simulate(made(answer))
    assert written["smallest_memory"] == {"device": "cuda:0", "low": 8 * GIB + HIGH, "high": 10 * GIB + HIGH}


@pytest.mark.parametrize(
    ("memory", "cached", "exact"),
    [
        (24 * GIB, int(24 * GIB * 0.02) - 1, True),
        (24 * GIB, int(24 * GIB * 0.02), False),
        (2 * GIB, 64 * MIB - 1, True),
        (2 * GIB, 64 * MIB, False),
    ],
)
def test_bounds_that_are_near_are_one_number(memory, cached, exact):
    answer, _, _ = ask(lambda setup: taking(GIB // 2 + cached, GIB // 2, setup), replace(OPEN, memory=memory))
    assert answer.smallest_memory is not None and answer.smallest_memory.exact is exact
    assert answer.smallest_memory.high == GIB // 2 + cached + HIGH


def test_the_smallest_memory_is_found_where_little_is_free():
    answer, asked, setups = ask(lambda setup: taking(22 * GIB, 16 * GIB, setup))
    tried = [name for name in asked if name.startswith("in ")]
    assert answer.verdict == "fits" and 1 <= len(tried) <= 4
    assert {setups[name].context for name in tried} == {HIGH}
    found = answer.smallest_memory
    assert found is not None and found.exact and 16 * GIB + HIGH <= found.high <= 17 * GIB + HIGH
    assert found.high == min(setups[name].memory for name in tried)
    assert [one.what for one in answer.attempts] == tried


def test_of_the_smaller_memories_one_that_fails_is_too_little():
    answer, _, setups = ask(lambda setup: taking(23 * GIB, 19 * GIB if setup.memory >= 22 * GIB else 22 * GIB, setup))
    found = answer.smallest_memory
    failed = max(setup.memory for setup in setups.values() if setup.memory < 22 * GIB)
    assert found is not None and found.exact and failed < 22 * GIB <= found.high < failed + 24 * GIB * 0.02


@pytest.mark.parametrize(
    "used", [24 * GIB - int(24 * GIB * 0.15) - HIGH - 1, 24 * GIB - int(24 * GIB * 0.15) - HIGH + 2]
)
def test_the_smallest_memory_is_searched_below_15_percent(used):
    _, asked, _ = ask(lambda setup: taking(used, 16 * GIB, setup))
    assert any(name.startswith("in ") for name in asked) is (used + HIGH > 24 * GIB * 0.85)


def test_one_run_searches_no_smaller_memory():
    answer, asked, _ = ask(lambda setup: taking(22 * GIB, 16 * GIB, setup), retry=False)
    assert asked == ["as asked"]
    assert answer.smallest_memory == Smallest("cuda:0", 16 * GIB + HIGH, 22 * GIB + HIGH)


def test_a_search_for_a_batch_size_has_no_smallest_memory():
    answer, asked, _ = ask(lambda setup: facts(setup, used=23 * GIB, oom_events=3, refused=6), allow_oom=True)
    assert answer.verdict == "fits" and answer.smallest_memory is None
    assert asked == ["as asked", "context of 700.0 MiB"]


def test_a_cache_that_was_emptied_makes_used_no_bound():
    given = replace(OPEN, context=MIDDLE)
    answer, _, _ = ask(lambda setup: facts(setup, used=20 * GIB, allocated=15 * GIB, retries=1), given)
    found = answer.smallest_memory
    assert found == Smallest("cuda:0", 15 * GIB + MIDDLE, 24 * GIB)


def test_the_smallest_memory_is_of_the_high_end():
    def program(setup: Setup) -> Facts:
        return taking(22 * GIB if setup.high_end else 12 * GIB, 12 * GIB, setup, modelled=CONVOLUTION)

    answer, asked, setups = ask(program)
    assert asked[:2] == ["as asked", "high end"]
    assert len(asked) > 2 and all(setups[name].high_end for name in asked[2:])


# --- the card ----------------------------------------------------------------------------------------------------


def too_large(tensors: int) -> Callable[[Setup], Facts]:
    return lambda setup: taking(tensors, tensors, setup, modelled=(runs.modelled("cuBLAS", 16 * MIB),))


def test_a_smaller_card_is_run_with_its_own_context_and_workspaces():
    answer, asked, setups = ask(too_large(45 * GIB))
    assert asked[-1] == "on a6000" and answer.smallest_card == "a6000"
    assert setups["on a6000"].context is None and setups["on a6000"].context_range == card("a6000").context
    shown = str(made(answer))
    assert "on which it ran: a6000 (cuBLAS multiplies matrices in 8.1 MiB there, not 32.0 MiB)\n" in shown
    answer, _, _ = ask(too_large(140 * GIB))
    assert answer.smallest_card == "b200" and "on which it ran: b200\n" in str(made(answer))


def test_cards_without_kernels_are_not_proposed():
    answer, asked, _ = ask(too_large(30 * GIB + 800 * MIB))
    assert "on v100-32gb" not in asked and answer.smallest_card == "a100-40gb"


def test_the_smallest_of_many_cards_is_found_by_bisection():
    def program(setup: Setup) -> Facts:
        return taking(44 * GIB, 20 * GIB, setup) if setup.memory > 44 * GIB else facts(setup, **FULL)

    answer, asked, _ = ask(program)
    tried = ["on rtx5090", "on a40", "on a40, context of 520.0 MiB"]
    tried += ["on l40s", "on l40s, context of 550.0 MiB", "on a100-40gb"]
    assert [name for name in asked if name.startswith("on ")] == tried
    assert answer.smallest_card == "l40s"


def test_another_size_of_a_card_has_that_cards_workspaces(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    multiplied = facts(OPEN, modelled=(runs.modelled("cuBLAS", 16 * MIB),))

    def notes(setup: Setup, main: Facts = multiplied) -> tuple[str, ...]:
        return made(Answer("fits", "", (), main), setup).notes

    assert notes(OPEN) == (
        "--memory changes the size alone: cuBLAS, which multiplies matrices, gets as much to work in as on h100, "
        "32.0 MiB for each handle and stream; it is 8.1 MiB with --device a10g, rtx3090, rtx4090 or l4",
    )
    assert notes(Setup(card("rtx4090"), 24 * GIB)) == ()  # cards of that size have the same
    assert notes(Setup(card("h100"), card("h100").memory)) == ()
    assert notes(OPEN, facts(OPEN)) == ()  # it multiplied no matrices
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    assert notes(OPEN) == ()


def test_a_card_without_kernels_says_so():
    (note,) = made(Answer("fits", "", (), facts()), Setup(card("v100-16gb"), 16 * GIB)).notes
    assert note.startswith("torch 2.14.1 has no kernels for v100-16gb (sm_70), so nothing runs on a real one")


def test_eighty_columns_are_enough():
    answer, _, _ = ask(lambda setup: taking(10 * GIB, 8 * GIB, setup))
    shown = text.render(simulate_views.simulation(made(answer)), 80).splitlines()
    assert max(map(len, shown)) <= 80, max(shown, key=len)
