"""The verdict of `cuptimem simulate`: which further runs it asks for, and what it says, over runs made by hand."""

import os
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from cudasim.report import Note
from cuptimem.output import json
from cuptimem.output.text import text
from cuptimem.report.model import HostRead
from cuptimem.simulation import as_json, assemble
from cuptimem.simulation import views as simulate_views
from cuptimem.simulation.environment import TorchBuild
from cuptimem.simulation.facts import Facts
from cuptimem.simulation.launch import Setup
from cuptimem.simulation.questions import NO_LIMIT, Answer, Inquiry, Interrupted, Wishes
from tests.tools.cli import simulated_runs as runs
from tests.tools.cli.simulated_runs import ASSERT, GIB, OOM, SETUP, facts

CONVOLUTION = "cuDNN convolution workspace"
FULL = {"exit_code": 1, "chain": (OOM,), "refused": 2, "oom_events": 1, "used": 23 * GIB, "allocated": 20 * GIB}


class Script:
    """What the program does on each setup."""

    def __init__(self, answer: Callable[[Setup], Facts]) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, setup: Setup, name: str) -> Facts:
        self.asked.append(name)
        return self.answer(setup)


def ask(
    answer: Callable[[Setup], Facts],
    setup: Setup = SETUP,
    variables: dict[str, str] | None = None,
    **wishes: object,
) -> tuple[Answer, list[str]]:
    script = Script(answer)
    found = Inquiry(script, setup, Wishes(**wishes), variables or {}).answer()  # type: ignore[arg-type]
    return found, script.asked


def needs(size: int, tensors: int, settings: str | None = None) -> Callable[[Setup], Facts]:
    """A program that runs from `size` on, or with `tensors` and these settings."""

    def answer(setup: Setup) -> Facts:
        enough = setup.memory >= size or (setup.alloc_conf == settings is not None and setup.memory >= tensors)
        if not enough:
            return facts(setup, **{**FULL, "used": setup.memory})
        used = size if setup.memory >= size else tensors
        return facts(setup, used=used, allocated=tensors - GIB // 2, settings=setup.alloc_conf or "")

    return answer


def test_it_fits_and_runs_once():
    answer, asked = ask(lambda setup: facts(setup))
    assert answer.verdict == "fits" and asked == ["as asked"]
    assert answer.reason == "14.0 GiB of cuda:0 stay free at its peak"


def test_a_context_and_handles_have_no_high_end():
    notes = (runs.modelled("CUDA context", GIB), runs.modelled("cuBLAS", 1 << 20), runs.modelled("cuFFT work area", 1))
    answer, asked = ask(lambda setup: facts(setup, modelled=notes))
    assert answer.verdict == "fits" and asked == ["as asked"]


def test_what_is_modelled_is_run_at_its_high_end():
    notes = (runs.modelled("cuDNN convolution workspace", 0),)
    answer, asked = ask(lambda setup: facts(setup, modelled=notes, used=(12 if setup.high_end else 10) * GIB))
    assert answer.verdict == "fits" and asked == ["as asked", "high end"]
    assert answer.reason.startswith("12.0 GiB of cuda:0")


def test_a_workspace_that_the_user_gave_has_no_high_end():
    notes = (runs.modelled("cuDNN convolution workspace", GIB),)
    answer, asked = ask(lambda setup: facts(setup, modelled=notes), replace(SETUP, conv_workspace=GIB))
    assert answer.verdict == "fits" and asked == ["as asked"]


def test_what_fits_at_the_low_end_only_is_undecided():
    def program(setup: Setup) -> Facts:
        notes = (runs.modelled("cuDNN convolution workspace", 0),)
        if not setup.high_end:
            return facts(setup, modelled=notes)
        if setup.memory == NO_LIMIT:
            return facts(setup, modelled=notes, used=30 * GIB)
        return facts(setup, modelled=notes, **FULL)

    answer, asked = ask(program)
    assert answer.verdict == "undecided" and asked == ["as asked", "high end", "high end, no limit"]
    assert "not at the high end" in answer.reason and "--conv-workspace" in answer.hints[0]
    result = made(answer)
    assert result.devices[0].used.low == 10 * GIB and result.devices[0].used.high == 30 * GIB


def test_assumed_sizes_have_a_high_end_unless_the_user_gave_them():
    answer, asked = ask(lambda setup: facts(setup, assumptions=(runs.assumption(given=True),)))
    assert answer.verdict == "fits" and asked == ["as asked"]
    answer, asked = ask(lambda setup: facts(setup, assumptions=(runs.assumption(),)))
    assert answer.verdict == "fits" and asked == ["as asked", "high end"]
    answer, asked = ask(lambda setup: facts(setup, assumptions=(runs.assumption(),)), retry=False)
    assert answer.verdict == "undecided" and asked == ["as asked"]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are seen from there."""
    monkeypatch.setattr(os, "getcwd", lambda: "/home")


def test_it_does_not_fit_and_no_setting_can_help():
    answer, asked = ask(needs(40 * GIB, 30 * GIB))
    assert answer.verdict == "does not fit" and answer.setting is None
    assert answer.need is not None and (answer.need.low, answer.need.high) == (30 * GIB, 40 * GIB)
    assert asked == ["as asked", "no limit", "on a100-40gb", "on l40s"]
    assert answer.smallest_card == "l40s"
    assert answer.notes == ("no allocator setting can help: tensors, context and libraries alone take 30.0 GiB",)
    assert answer.reason == "out of memory at u/train.py:30"


def test_it_fits_with_a_setting_that_was_run():
    answer, asked = ask(needs(25 * GIB, 20 * GIB, "max_split_size_mb:128"))
    assert answer.verdict == "fits with settings" and answer.setting == "PYTORCH_ALLOC_CONF=max_split_size_mb:128"
    assert asked[:5] == [
        "as asked",
        "no limit",
        "PYTORCH_ALLOC_CONF=expandable_segments:True",
        "PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.8",
        "PYTORCH_ALLOC_CONF=max_split_size_mb:128",
    ]
    assert [attempt.outcome for attempt in answer.attempts[:4]] == ["ran", "out of memory", "out of memory", "ran"]
    assert made(answer).code == 3 and made(answer).fits is False


def test_a_setting_that_the_program_replaced_was_not_tried():
    program = needs(25 * GIB, 20 * GIB, "expandable_segments:True")
    answer, _ = ask(lambda setup: replace(program(setup), settings="max_split_size_mb:64"))
    assert answer.verdict == "does not fit"
    assert answer.notes[0] == (
        "PYTORCH_ALLOC_CONF=expandable_segments:True was not tried: the program sets max_split_size_mb:64 itself"
    )


def test_a_setting_must_hold_at_the_high_end():
    def program(setup: Setup) -> Facts:
        found = needs(25 * GIB, 20 * GIB, "expandable_segments:True")(setup)
        if setup.alloc_conf is not None and setup.high_end:
            return facts(setup, **FULL)
        return replace(found, modelled=(runs.modelled("cuDNN convolution workspace", 0),))

    answer, asked = ask(program)
    assert answer.verdict == "does not fit" and answer.setting is None
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True, high end" in asked


def test_what_runs_at_the_high_end_only_is_undecided():
    def program(setup: Setup) -> Facts:
        found = facts(setup) if setup.high_end else needs(25 * GIB, 20 * GIB)(setup)
        return replace(found, modelled=(runs.modelled("cuDNN attention workspace", 0),))

    answer, asked = ask(program)
    assert answer.verdict == "undecided" and "it ran at the high end" in answer.reason and asked[-1] == "high end"


def test_the_users_settings_stay_beside_the_tried_one():
    _, asked = ask(needs(25 * GIB, 20 * GIB), variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128" in asked
    assert "PYTORCH_ALLOC_CONF=expandable_segments:True" not in asked


def test_a_caught_out_of_memory_is_never_said_to_fit():
    answer, asked = ask(lambda setup: facts(setup, oom_events=3, refused=6))
    assert answer.verdict == "undecided" and asked == ["as asked"]
    assert "caught 3 OutOfMemoryErrors" in answer.reason and answer.hints == (
        "--allow-oom says that it means to catch them",
    )
    answer, _ = ask(lambda setup: facts(setup, oom_events=3, refused=6), allow_oom=True)
    assert answer.verdict == "fits" and "3 refused allocations caught" in answer.reason


def test_a_failure_after_a_refusal_is_decided_without_a_limit():
    refused = {"exit_code": 1, "refused": 2, "oom_events": 1, "chain": None}
    answer, asked = ask(lambda setup: facts(setup) if setup.memory == NO_LIMIT else facts(setup, **refused))
    assert answer.verdict == "does not fit" and asked[:2] == ["as asked", "no limit"]
    failed = {"exit_code": 1, "chain": (ASSERT,)}
    answer, asked = ask(
        lambda setup: facts(setup, **failed) if setup.memory == NO_LIMIT else facts(setup, **{**refused, **failed})
    )
    assert answer.verdict == "script failed" and "AssertionError" in answer.reason
    answer, asked = ask(lambda setup: facts(setup, **refused), retry=False)
    assert answer.verdict == "undecided" and asked == ["as asked"]


def test_it_ran_out_and_would_fail_anyway():
    answer, _ = ask(
        lambda setup: facts(setup, exit_code=1, chain=(ASSERT,)) if setup.memory == NO_LIMIT else facts(setup, **FULL)
    )
    assert answer.verdict == "does not fit" and answer.need is None
    assert answer.notes == ("with room enough, AssertionError: loss is zero at u/train.py:30",)


def test_a_program_that_takes_everything():
    def program(setup: Setup) -> Facts:
        return facts(setup, used=setup.memory) if setup.memory == NO_LIMIT else facts(setup, **FULL)

    answer, asked = ask(program)
    assert answer.verdict == "does not fit" and answer.need is not None and answer.need.takes_everything
    assert not any(name.startswith("on ") for name in asked) and answer.smallest_card is None


def test_without_retry_it_runs_once():
    answer, asked = ask(lambda setup: facts(setup, **FULL), retry=False)
    assert answer.verdict == "does not fit" and asked == ["as asked"] and answer.need is None


def test_a_program_that_never_used_cuda():
    answer, _ = ask(lambda setup: facts(setup, used=None))
    assert answer.verdict == "undecided" and "never used CUDA" in answer.reason


def test_a_program_that_only_made_a_context():
    context = GIB // 2
    answer, asked = ask(lambda setup: facts(setup, used=context, allocated=0))
    assert answer.verdict == "undecided" and "nothing of a device but its context" in answer.reason
    assert asked == ["as asked"]
    answer, _ = ask(lambda setup: facts(setup, used=context + 1, allocated=0))  # memory that is not PyTorch's
    assert answer.verdict == "fits"


def test_an_entry_point_that_nobody_described():
    answer, _ = ask(lambda setup: facts(setup, undescribed=(runs.undescribed("cublasNew"),)))
    assert answer.verdict == "undecided" and "cublasNew" in answer.reason


def test_time_is_up():
    """The advice fits: a loop that printed a loss in each step waits for nothing."""

    def late(kind: str) -> tuple[str, str]:
        reads = (runs.read(kind, count=40_000, library=7),)
        answer, asked = ask(
            lambda setup: facts(setup, exit_code=None, signal=15, timed_out=True, unknown_reads=reads), timeout=20.0
        )
        assert answer.verdict == "undecided" and asked == ["as asked"] and "after 20 s" in answer.reason
        return answer.reason, answer.hints[0]

    reason, hint = late("flag")
    assert "u/train.py:12 (in torchlike/loop.py:7) read a value" in reason and "40000 times" in reason
    assert hint.startswith("give that loop a bound")
    reason, hint = late("float")
    assert "read a value" not in reason and hint.startswith("run fewer steps")


@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        (
            {"chain": (ASSERT,), "host_reads": (runs.host_read(30),)},
            "checks a value that no kernel",
            "leave this check",
        ),
        (
            {"chain": (ASSERT,), "host_reads": (runs.host_read(29),)},
            "checks a value that no kernel",
            "leave this check",
        ),
        ({"chain": (ASSERT,), "host_reads": (runs.host_read(29, function="other"),)}, "AssertionError: loss is", ""),
        ({"chain": (ASSERT,), "assumptions": (runs.assumption(line=30),)}, "is assumed", "--assume nonzero="),
        ({"chain": (ASSERT,), "unsupported": (runs.unsupported("NCCL"),)}, "uses NCCL", "fake process group"),
        ({"chain": (ASSERT,), "unsupported": (runs.unsupported("CUDA IPC"),)}, "uses CUDA IPC", "return CPU"),
        ({"chain": (ASSERT,), "undescribed": (runs.undescribed("cuFoo"),)}, "cuFoo", "report their names"),
        ({"chain": (ASSERT,), "limited": 3}, "this machine refused 3 requests", "ulimit -v"),
        ({"chain": None}, "ended with exit code 1", ""),
        ({"exit_code": None, "signal": 11}, "SIGSEGV", "bug of the simulated device"),
        ({"exit_code": None, "signal": 9}, "killed (SIGKILL)", "host memory"),
    ],
)
def test_what_a_failure_is_said_to_be(more, said, hint):
    answer, asked = ask(lambda setup: facts(setup, **{"exit_code": 1, **more}))
    assert answer.verdict == "script failed" and asked == ["as asked"]
    assert said in answer.reason and (hint in " ".join(answer.hints)), answer
    assert made(answer).code == 5 and made(answer).fits is None


def test_a_crash_names_its_line():
    crash = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/home/u/train.py", line 4 in f\n'
    )
    made_run = facts(exit_code=None, signal=11)
    answer, _ = ask(lambda setup: replace(made_run, run=replace(made_run.run, crash=crash)))
    assert "SIGSEGV at u/train.py:4" in answer.reason


def test_a_crash_at_exit_is_run_again_once():
    well, through = facts(), {"leader": True, "ended": True}
    crashed = facts(exit_code=None, signal=6)
    crashed = replace(crashed, run=replace(crashed.run, notes=(through,)))
    for second, verdict in ((well, "fits"), (crashed, "script failed")):
        runs_left = [crashed, second]
        answer, asked = ask(lambda setup, left=runs_left: left.pop(0))
        assert answer.verdict == verdict and asked == ["as asked", "again, after a crash at exit"]
        assert "shut down" in answer.notes[0]


def test_several_processes_on_one_device():
    shared = facts(used=30 * GIB)
    shared = replace(shared, devices=(replace(shared.devices[0], processes=2),), processes=2)
    answer, _ = ask(lambda setup: shared)
    assert answer.verdict == "undecided" and "2 processes" in answer.reason


def integers(line: int = 12, count: int = 3, size: int = 8) -> HostRead:
    return replace(runs.host_read(line, count), bytes=size * count)


@pytest.mark.parametrize(
    ("said", "trusting", "reason"),
    [
        ({"host_reads": (integers(),)}, {"trust_reads": True}, "an integer at u/train.py:12: by code that is not"),
        ({"host_reads": (integers(size=1),)}, {"trust_reads": True}, "a flag at u/train.py:12"),
        ({"host_reads": (integers(size=64), integers(14))}, {"trust_reads": True}, "and 1 other line"),
        ({"unaccounted": 2}, {"allow_oom": True}, "refused 2 requests, and what came of it is not known"),
        ({"elsewhere": (ASSERT,)}, None, "a thread or process of the program ended with AssertionError"),
        ({"lost_processes": 1}, None, "ended without a word"),
        ({"unsupported": (Note(2, "NCCL", 3, 0),)}, None, "the program uses NCCL, which is not simulated"),
        ({"assumptions": (runs.assumption("repeat_interleave"),)}, None, "no largest"),
    ],
)
def test_what_leaves_a_run_that_ended_well_in_doubt(said, trusting, reason):
    """In the first run, and in one that only decides: with another setting, at the high end."""
    answer, asked = ask(lambda setup: facts(setup, **said))
    assert (answer.verdict, asked) == ("undecided", ["as asked"]) and reason in answer.reason
    if trusting:
        assert ask(lambda setup: facts(setup, **said), **trusting)[0].verdict == "fits"
    if "host_reads" not in said:
        answer, asked = ask(lambda setup: replace(needs(40 * GIB, 20 * GIB, "expandable_segments:True")(setup), **said))
        assert answer.verdict == "does not fit" and answer.setting is None and answer.smallest_card is None


@pytest.mark.parametrize(
    "read",
    [runs.host_read(12, 3), integers(size=4096), integers(size=12), replace(integers(), written=True)],
    ids=["a loss", "weights that are saved", "three floats", "what the host had written"],
)
def test_reads_that_leave_no_doubt(read):
    assert ask(lambda setup: facts(setup, host_reads=(read,)))[0].verdict == "fits"


def test_several_processes_at_the_high_end():
    def answer(setup: Setup) -> Facts:
        found = facts(setup, used=(30 if setup.high_end else 20) * GIB, modelled=(Note(3, CONVOLUTION, 1, 0),))
        return replace(found, devices=(replace(found.devices[0], processes=2),), processes=2)

    found, asked = ask(answer)
    assert found.verdict == "undecided" and asked == ["as asked", "high end"] and "2 processes" in found.reason


def test_a_limit_of_the_programs_own():
    found, asked = ask(lambda setup: facts(setup, **{**FULL, "refused": 0, "used": 6 * GIB}))
    assert found.verdict == "does not fit" and asked == ["as asked"] and "limit of the program's own" in found.reason


def test_what_does_not_fit_by_an_assumed_size():
    assumed = (runs.assumption(),)
    found, _ = ask(lambda setup: replace(needs(40 * GIB, 30 * GIB)(setup), assumptions=assumed))
    assert found.verdict == "does not fit" and "rests on an assumed size: nonzero=0.5" in found.hints[0]


def test_an_interrupt_is_no_answer():
    with pytest.raises(Interrupted):
        ask(lambda setup: facts(setup, exit_code=None, signal=2))


def made(answer: Answer):
    return assemble.simulation(answer, SETUP, TorchBuild("2.14.1", "13.0", None), ())


@pytest.mark.parametrize("size", [(40 * GIB, 30 * GIB), (10 * GIB, 9 * GIB)])
def test_every_answer_can_be_shown_pickled_and_written(size):
    answer, _ = ask(
        lambda setup: replace(
            needs(*size)(setup), host_reads=(runs.host_read(30, 12),), assumptions=(runs.assumption(given=True),)
        )
    )
    result = made(answer)
    assert pickle.loads(pickle.dumps(result)) == result
    shown = text.render(simulate_views.simulation(result))
    assert ("FITS in 24.0 GiB" if result.fits else "DOES NOT FIT in 24.0 GiB") in shown
    assert "u/train.py:30" in shown and "     12   48 B  u/train.py:30  train" in shown
    written = as_json.simulate(result)
    assert written["verdict"] == result.verdict and written["exit_code"] == result.code
    assert written["devices"][0]["used"] == {"low": result.devices[0].used.low, "high": result.devices[0].used.high}
    assert "NaN" not in json.text(written)
