"""Verdicts over programs that read what no kernel has computed: which runs decide them. Runs made by hand."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cuptimem.report.model import Steps
from cuptimem.report.stacks import Frame
from cuptimem.simulation import outcomes
from cuptimem.simulation.facts import Facts
from cuptimem.simulation.launch import Setup
from tests.tools.cli import simulated_runs as runs
from tests.tools.cli.simulated_runs import ASSERT, GIB, facts
from tests.tools.cli.test_simulate_verdict import FULL, ask

FAILED: dict[str, Any] = {"exit_code": 1, "chain": (ASSERT,)}
BOTH = f"{outcomes.BRANCHES}, {outcomes.INTEGERS}"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are seen from there."""
    monkeypatch.setattr(os, "getcwd", lambda: "/home")


def reading(*kinds: str, branches: dict[str, Any] | None = None, integers: dict[str, Any] | None = None, **main: Any):
    """A program that reads such values; what is different where branches or integers come out the other way."""
    reads = tuple(runs.read(kind) for kind in kinds)

    def answer(setup: Setup) -> Facts:
        more: dict[str, Any] = {"unknown_reads": reads, **main}
        if setup.other_branches:
            more |= branches or {}
        if setup.other_integers:
            more |= integers or {}
        return facts(setup, **more)

    return answer


def test_floats_need_one_more_run_only_where_their_comparisons_are_not_seen():
    answer, asked = ask(reading("float"))
    assert answer.verdict == "fits" and asked == ["as asked"]
    answer, asked = ask(reading("unfollowed float"))
    assert answer.verdict == "fits" and asked == ["as asked", outcomes.BRANCHES]


def test_a_float_that_was_not_seen_to_decide_anything_does_not_forbid_a_verdict():
    """Another value may break what no real one would; a program that ended after one step may have ended by it."""
    answer, _ = ask(reading("unfollowed float", branches=FAILED, report=many_steps(3)))
    assert answer.verdict == "fits"
    answer, asked = ask(reading("unfollowed float", branches=FAILED, report=many_steps(1)))
    assert answer.verdict == "undecided" and "a float at u/train.py:12" in answer.reason
    assert asked == ["as asked", outcomes.BRANCHES, BOTH]


def test_a_float_that_was_not_seen_still_decides_by_memory():
    answer, _ = ask(reading("unfollowed float", branches=FULL, report=many_steps(3)))
    assert answer.verdict == "undecided" and "the other way does not fit" in answer.reason


def many_steps(number: int) -> Any:
    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(runs.report(8 * GIB), name)

        steps = Steps(type("Step", (), {"index": index, "incomplete": False})() for index in range(number))

    return Recorded()


@pytest.mark.parametrize("kind", ["flag", "branch"])
def test_a_branch_is_decided_if_both_ways_fit(kind: str):
    answer, asked = ask(reading(kind, branches={"used": 9 * GIB, "allocated": 7 * GIB}))
    assert (answer.verdict, asked) == ("fits", ["as asked", outcomes.BRANCHES])
    assert answer.reason == "14.0 GiB of cuda:0 stay free at its peak" and answer.first is None
    assert "its peak is 8.0 GiB or 7.0 GiB, and the larger one counts" in answer.notes[0]


def test_the_way_that_takes_more_is_the_program_from_then_on():
    notes = (runs.modelled("cuDNN convolution workspace", 0),)
    ran: list[Setup] = []

    def program(setup: Setup) -> Facts:
        ran.append(setup)
        return reading("flag", branches={"used": 20 * GIB, "allocated": 18 * GIB}, modelled=notes)(setup)

    answer, asked = ask(program)
    assert answer.verdict == "fits" and answer.reason.startswith("4.0 GiB")
    assert asked == ["as asked", outcomes.BRANCHES, "high end"] and ran[2].other_branches
    assert answer.first is not None and answer.main.devices[0].used == 20 * GIB


def test_a_branch_that_fits_one_way_only_is_undecided():
    answer, _ = ask(reading("flag", branches=FULL))
    assert answer.verdict == "undecided" and "a flag at u/train.py:12: the other way does not fit" in answer.reason
    answer, _ = ask(
        lambda setup: facts(setup, unknown_reads=(runs.read("flag"),), **({} if setup.other_branches else FULL))
    )
    assert answer.verdict == "undecided" and "it fits the other way of a flag at u/train.py:12" in answer.reason


def test_a_loop_runs_to_its_own_bound_whichever_way_stops_it():
    """It reads its flag more often there: that is the upper bound, and what counts."""
    short, long = (runs.read("flag", count=1),), (runs.read("flag", count=60),)

    def stops(setup: Setup) -> Facts:  # a False ends it
        if setup.other_branches and setup.memory < 40 * GIB:
            return facts(setup, unknown_reads=long, **FULL)
        return facts(setup, unknown_reads=long if setup.other_branches else short)

    answer, _ = ask(stops)
    assert answer.verdict == "does not fit" and any("an upper bound" in note for note in answer.notes)

    def goes_on(setup: Setup) -> Facts:  # a False goes on
        if setup.other_branches:
            return facts(setup, unknown_reads=short)
        return facts(setup, unknown_reads=long, **(FULL if setup.memory < 40 * GIB else {}))

    answer, _ = ask(goes_on)
    assert answer.verdict == "does not fit" and any("an upper bound" in note for note in answer.notes)
    answer, _ = ask(reading("flag", branches={"unknown_reads": long, "used": 11 * GIB, "allocated": 9 * GIB}))
    assert answer.verdict == "fits" and any("an upper bound" in note for note in answer.notes)


def test_an_integer_must_not_change_the_peak():
    answer, asked = ask(reading("integer"))
    assert (answer.verdict, asked) == ("fits", ["as asked", outcomes.LARGER_INTEGERS])
    answer, _ = ask(reading("integer", integers={"allocated": 8 * GIB + 512}))
    assert answer.verdict == "undecided" and "64 instead of 0 changes its peak" in answer.reason


def test_an_integer_that_is_no_size_of_64_is_1():
    def program(setup: Setup) -> Facts:
        if setup.other_integers == 1:
            return reading("integer", integers={"allocated": 8 * GIB + 512})(setup)
        return reading("integer", integers=FAILED)(setup)

    answer, asked = ask(program)
    assert (answer.verdict, asked) == ("undecided", ["as asked", outcomes.LARGER_INTEGERS, outcomes.INTEGERS])
    assert "1 instead of 0 changes its peak" in answer.reason


def test_branches_are_decided_before_integers():
    other = {"used": 12 * GIB, "allocated": 10 * GIB}
    answer, asked = ask(reading("flag", "integer", branches=other))
    assert (answer.verdict, asked) == ("fits", ["as asked", outcomes.BRANCHES, outcomes.LARGER_INTEGERS])


def test_flags_and_integers_together_where_flags_alone_make_no_sense():
    def program(setup: Setup) -> Facts:
        alone = setup.other_branches and not setup.other_integers
        return reading("flag", "integer", **(FAILED if alone else {}))(setup)

    answer, asked = ask(program)
    assert (answer.verdict, asked) == ("fits", ["as asked", outcomes.BRANCHES, BOTH, outcomes.LARGER_INTEGERS])


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (FAILED, "could not be run: AssertionError"),
        ({"exit_code": None, "signal": 15, "timed_out": True}, "was still running when its time was up"),
        ({"lost_processes": 1}, "is not sure: 1 process of the program used the device"),
    ],
)
def test_what_leaves_the_other_way_open(other: dict[str, Any], reason: str):
    for kind, name in (("flag", "branches"), ("integer", "integers")):
        answer, _ = ask(reading(kind, **{name: other}))  # type: ignore[arg-type]
        assert answer.verdict == "undecided" and reason in answer.reason, answer.reason


REFUSED = replace(ASSERT, inner=Frame("/v/torchlike/loop.py", "go", 82))


def refusing(ran: Callable[[Setup], bool], **other: Any) -> Callable[[Setup], Facts]:
    """It reads a flag where it fails, and another one elsewhere."""
    near = replace(runs.read("flag"), library=Frame("/v/torchlike/loop.py", "go", 80))
    far = replace(runs.read("integer", 14), library=Frame("/v/torchlike/other.py", "go", 80))
    failed = {"exit_code": 1, "chain": (REFUSED,)}

    def answer(setup: Setup) -> Facts:
        return facts(setup, unknown_reads=(far, near), **(other if ran(setup) else failed))

    return answer


def test_a_program_that_refuses_zeros_takes_the_other_way_where_it_failed():
    """Only there: elsewhere both ways are still tried."""
    answer, asked = ask(refusing(lambda setup: setup.pinned == ("/v/torchlike/loop.py:80",)))
    there = "the other way at loop.py:80"
    assert (answer.verdict, asked) == ("fits", ["as asked", there, outcomes.BRANCHES, outcomes.LARGER_INTEGERS])
    assert (
        answer.notes[0].startswith("AssertionError") and f"with {there} it ran, and that run counts" in answer.notes[0]
    )
    answer, asked = ask(refusing(lambda setup: setup.memory > 40 * GIB if setup.pinned else False))
    assert (answer.verdict, asked) == (
        "script failed",
        ["as asked", there, outcomes.LARGER_INTEGERS, outcomes.INTEGERS, BOTH],
    )
    answer, _ = ask(refusing(lambda setup: bool(setup.pinned), **FULL))
    assert answer.verdict == "does not fit"


def test_an_index_into_nothing_goes_back_to_a_length_of_zero():
    answer, asked = ask(refusing(lambda setup: setup.other_integers and not setup.pinned))
    assert answer.verdict == "fits" and asked[:3] == [
        "as asked",
        "the other way at loop.py:80",
        outcomes.LARGER_INTEGERS,
    ]
    answer, asked = ask(refusing(lambda setup: setup.other_integers == 1 and not setup.pinned))
    assert answer.verdict == "fits" and asked[2:4] == [outcomes.LARGER_INTEGERS, outcomes.INTEGERS]
    assert f"with {outcomes.INTEGERS} it ran" in answer.notes[0]

    def goes_on(setup: Setup) -> Facts:
        if setup.other_branches:
            return facts(setup, unknown_reads=(runs.read("flag", count=9),))
        return facts(setup, unknown_reads=(runs.read("flag", count=1),), **FAILED)

    answer, asked = ask(goes_on)
    assert (answer.verdict, asked) == ("fits", ["as asked", BOTH])
    for more in ({"retry": False}, {"trust_reads": True}):
        answer, asked = ask(refusing(lambda setup: setup.other_integers), **more)
        assert (answer.verdict, asked) == ("script failed", ["as asked"])


def test_trust_reads_runs_nothing_more_and_holds_for_floats():
    for kinds in (("flag", "integer"), ("branch",), ("unfollowed float",)):
        answer, asked = ask(reading(*kinds, branches=FAILED, integers=FAILED), trust_reads=True)
        assert (answer.verdict, asked) == ("fits", ["as asked"])


def test_without_retry_reads_leave_it_open():
    answer, asked = ask(reading("flag"), retry=False)
    assert (answer.verdict, asked) == ("undecided", ["as asked"]) and "(--no-retry)" in answer.reason
    answer, _ = ask(reading("unfollowed float"), retry=False)
    assert answer.verdict == "fits"


def test_an_undecided_answer_names_the_librarys_line():
    read = runs.read("flag", library=80)
    answer, _ = ask(lambda setup: facts(setup, unknown_reads=(read,), **(FAILED if setup.other_branches else {})))
    assert "a flag at u/train.py:12 (in torchlike/loop.py:80)" in answer.reason


def test_a_setting_must_hold_both_ways():
    wanted = "expandable_segments:True"

    def program(fits_both: bool) -> Callable[[Setup], Facts]:
        def answer(setup: Setup) -> Facts:
            good = setup.memory > 100 * GIB or (setup.alloc_conf == wanted and (fits_both or not setup.other_branches))
            made = facts(setup, settings=setup.alloc_conf or "", allocated=20 * GIB, used=21 * GIB)
            made = made if good else facts(setup, **FULL)
            return replace(made, unknown_reads=(runs.read("flag"),))

        return answer

    assert ask(program(True))[0].verdict == "fits with settings"
    assert ask(program(False))[0].verdict == "does not fit"
