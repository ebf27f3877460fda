"""An allocation that the CPU's allocator refuses: when the page is printed, and what is on it."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cuptimem
from cuptimem.record import recorder, refusals
from tests.conftest import Result
from tests.record.ooms import programs

pytestmark = pytest.mark.torch

ASKED = 4 << 46
LINE = programs.BEGIN.splitlines().index("    return torch.empty(1 << power)") + 1
TITLE = "Out of memory on cpu: 256.0 TiB refused"
Run = Callable[..., Result]


@pytest.fixture
def recorded(forked: Run, tmp_path: Path) -> Run:
    """Runs it as `cuptimem run` would."""

    def call(text: str, *options: str) -> Result:
        (tmp_path / "program.py").write_text(programs.BEGIN + text)
        return forked("-m", "cuptimem", "run", *options, "-o", "x.cmem", "program.py")

    return call


def page(text: str) -> list[str]:
    lines = text[text.index(TITLE) :].splitlines()
    ends = [i for i, line in enumerate(lines) if line.startswith(("cuptimem: wrote", "Traceback"))]
    return lines[: ends[0]] if ends else lines


@pytest.mark.parametrize("name", programs.LEAVES_THE_PROGRAM)
def test_the_page_is_printed_once_when_it_ends_the_program(recorded: Run, tmp_path: Path, name: str) -> None:
    done = recorded(programs.LEAVES_THE_PROGRAM[name])
    assert done.code == 1 and done.out == "" and done.err.count(TITLE) == 1, done.err
    ended = "hook\n" if "hook of" in name else "\nTraceback" if "Traceback" in done.err else "Error"
    assert done.err.rindex(ended.strip()) < done.err.index(TITLE)
    assert "were not recorded" not in done.err and "was not recorded" not in done.err
    report = cuptimem.open(tmp_path / "x.cmem")
    left = report.oom_left
    assert left is not None and left.requested == ASKED and left is report.ooms[-1]
    assert left.frame is not None and left.frame.function == "ask"
    assert sum(c.bytes for c in left.contributors) == left.allocated and left.unknown == 0
    assert sum("out of memory on cpu: asked for 256.0 TiB" in line for line in str(report).splitlines()) == 1


def test_what_the_program_catches_has_a_line_and_no_page(recorded: Run, call: Run, tmp_path: Path) -> None:
    done = recorded(programs.STAYS)
    assert done.code == 1 and "Out of memory on" not in done.err, done.err
    report = cuptimem.open(tmp_path / "x.cmem")
    assert report.oom_left is None and report.device("cpu").refused == 5
    (line,) = [line for line in str(report).splitlines() if line.startswith("! ")]
    assert line.startswith("! 5 requests were refused and caught: at most 256.0 TiB asked at ")
    assert f"program.py:{LINE} with " in line
    assert call("peak", "--at", "oom", "--step", "1", "x.cmem").code == 2
    other = call("peak", "--at", "oom", "--device", "cuda", "x.cmem")
    assert other.code == 1 and "no device 'cuda'" in other.err


def raised(text: str) -> BaseException:
    try:
        exec(text, {"refuse": refuse})
    except BaseException as error:
        return error
    raise AssertionError(text)


def refuse() -> None:
    raise RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes.")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("refuse()", True),
        ("try: refuse()\nexcept Exception as error: raise ValueError() from error", True),
        ("try: refuse()\nexcept Exception: {}['key']", True),
        ("try: refuse()\nexcept Exception: raise ValueError() from None", False),
        ("try: refuse()\nexcept Exception as error: raise ExceptionGroup('', [ValueError(), error])", True),
        ("import torch; raise torch.OutOfMemoryError()", True),
        ("import torch\nclass Own(torch.cuda.OutOfMemoryError): pass\nraise Own()", True),
        ("raise MemoryError()", False),
        ("raise RuntimeError('CUDA out of memory is what I print')", False),
        ("class OutOfMemoryError(Exception): pass\nraise OutOfMemoryError()", False),
        ("error = ValueError(); error.__cause__ = error; raise error", False),
    ],
)
def test_exceptions(text: str, is_one: bool) -> None:
    assert refusals.is_of(raised(text)) is is_one


def test_pythons_own_memory_is_not_ours(recorded: Run, call: Run, tmp_path: Path) -> None:
    done = recorded(programs.NOT_PYTORCHS)
    assert done.code == 1 and "Out of memory" not in done.err
    refused = call("peak", "--at", "oom", "x.cmem")
    assert refused.code == 1 and refused.err == "cuptimem: no request was refused in this recording\n"


def test_quiet_prints_no_page(recorded: Run, call: Run, tmp_path: Path) -> None:
    done = recorded("ask()", "-q")
    assert done.code == 1 and "Out of memory on" not in done.err
    assert page(call("peak", "--at", "oom", "x.cmem").out)


def executed(text: str) -> None:
    exec(compile(programs.BEGIN + text, "program.py", "exec"), {})


@pytest.mark.parametrize("name", programs.LEAVES_A_PROFILE)
def test_the_page_is_printed_once_when_it_leaves_the_outermost_profile(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="DefaultCPUAllocator"):
        executed(programs.LEAVES_A_PROFILE[name])
    seen = capfd.readouterr()
    assert seen.out == "" and seen.err.count(TITLE) == 1
    assert f"program.py:{LINE} in ask" in seen.err


@pytest.mark.parametrize("name", programs.STAYS_IN_A_PROFILE)
def test_no_page_of_what_does_not_leave_the_profile(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    executed(programs.STAYS_IN_A_PROFILE[name])
    assert capfd.readouterr() == ("", "")


def test_the_file_of_an_inner_profile_knows_what_left_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with (
        cuptimem.profile(tmp_path / "outer.cmem") as outer,
        pytest.raises(RuntimeError),
        cuptimem.profile(tmp_path / "inner.cmem") as inner,
    ):
        executed("ask()")
    for report in (inner.report, cuptimem.open(tmp_path / "inner.cmem")):
        assert report.oom_left is not None and "out of memory on cpu: asked for 256.0 TiB" in str(report)
    for report in (outer.report, cuptimem.open(tmp_path / "outer.cmem")):
        assert len(report.ooms) == 1 and report.oom_left is None
    assert capfd.readouterr() == ("", "")


def test_a_profile_that_was_left_open(forked: Run) -> None:
    done = forked("-c", programs.BEGIN + "cuptimem.profile().start()\nask()\n")
    assert done.code == 1 and done.err.count(TITLE) == 1, done.err
    assert done.err.index("Traceback") < done.err.index(TITLE)


def test_a_child_of_multiprocessing(recorded: Run, tmp_path: Path) -> None:
    text = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=ask)
child.start()
child.join()
"""
    done = recorded(text, "--follow")
    # From 3.14 on a child has handled what its target raised before anything of ours runs: its trace has the request,
    # but not that it ended the target.
    seen = sys.version_info < (3, 14)
    assert done.code == 0 and done.err.count(TITLE) == seen, done.err
    (child,) = (path for path in tmp_path.glob("*.cmem") if path.name != "x.cmem")
    report = cuptimem.open(child)
    assert len(report.ooms) == 1 and (report.oom_left is not None) == seen
    assert cuptimem.open(tmp_path / "x.cmem").ooms == ()


def test_the_account_survives_a_kill(recorded: Run, call: Run, tmp_path: Path) -> None:
    text = """
import os, signal
try:
    ask()
except RuntimeError:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = recorded(text)
    assert done.code == -signal.SIGKILL
    report = cuptimem.open(tmp_path / "x.cmem")
    (oom,) = report.ooms
    assert report.state == "recovered" and not oom.escaped
    assert oom.requested == ASKED and sum(c.bytes for c in oom.contributors) == oom.allocated == 12_000
    assert any("1 request was refused: 256.0 TiB asked" in line for line in str(report).splitlines())
    assert TITLE in call("peak", "--at", "oom", "x.cmem").out


def test_in_backward_it_is_charged_to_the_forward_line(recorded: Run, tmp_path: Path) -> None:
    text = """
x = torch.ones(1, requires_grad=True)
first = x.expand(1 << 46)[0]
first.backward()
"""
    done = recorded(text)
    shown = page(done.err)
    assert shown[1].endswith("program.py:12 in <module>") and shown[2].strip() == "first = x.expand(1 << 46)[0]"
    assert "for SelectBackward0, in backward" in shown[3]
    left = cuptimem.open(tmp_path / "x.cmem").oom_left
    assert left is not None and left.origin[0].line != 12 and left.operator == "SelectBackward0"
    said = str(cuptimem.open(tmp_path / "x.cmem"))
    assert "in use, in the backward pass of " in said and "program.py:12  first = x.expand(1 << 46)[0]" in said


def test_one_page_of_many_lines_and_modules(recorded: Run, tmp_path: Path) -> None:
    classes = "\n".join(f"class Layer{i}(torch.nn.Linear): pass" for i in range(20))
    calls = "\n".join(f"kept.append(Layer{i}(100, {i + 1})(torch.ones(50 + {i}, 100)))" for i in range(20))
    done = recorded(f"{classes}\n{calls}\nask()  # {'x' * 200}\n")
    shown = page(done.err)
    assert max(map(len, shown)) <= 80, "\n".join(shown)
    advised = next(i for i, line in enumerate(shown) if line.startswith("What would lower the peak"))
    assert advised <= 50 and len(shown) - advised <= 12
    assert sum("more)" in line for line in shown) == 2


def test_what_came_behind_a_refused_request_is_unknown(recorded: Run, call: Run, tmp_path: Path) -> None:
    """Behind the step's end: an optimizer would have gone on to make states of all others."""
    text = """
kept = [torch.nn.Linear(64, 64) for _ in range(4)]
sum(one(torch.ones(8, 64)).sum() for one in kept).backward()
states = [torch.zeros(64, 64) for _ in range(8)]
ask()
"""
    said = " ".join(" ".join(page(recorded(text).err)).split())
    unknown = "what the program would have asked for next is unknown"
    assert f"predicted of what was alive by then: {unknown}; " in said
    advised = cuptimem.open(tmp_path / "x.cmem").advice
    assert advised.note.endswith(unknown) and advised.step is None
    assert "step None" not in call("summary", "x.cmem").out
    assert call("advice", "--budget", "1GiB", "x.cmem").code == 4


def test_what_would_lower_the_peak_is_of_a_step_that_ended(recorded: Run, call: Run, tmp_path: Path) -> None:
    """The larger step is refused in its forward pass: what its backward pass would have read is not known."""
    text = """
from torch.nn import Linear, functional
first, last = Linear(32, 64), Linear(64, 8)
optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()])
def step(rows):
    x = first(torch.zeros(4, rows, 32))
    mixed = torch.softmax(x @ x.transpose(1, 2), -1) @ x
    if rows > 400:
        ask()
    last(mixed).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
for rows in (100, 200, 400, 900):
    step(rows)
"""
    shown = page(recorded(text).err)
    report = cuptimem.open(tmp_path / "x.cmem")
    advised = report.advice
    assert report.peak.step == 3 and report.peak.bytes > advised.peak == report.step_peak(2).bytes
    assert advised.step == 2 and "refused in step 3" in advised.note
    best = min(advised.proposals, key=lambda one: one.bytes)
    assert best.technique == "fused_attention" and advised.peak - best.saved == best.bytes
    at = next(i for i, line in enumerate(shown) if line.startswith("What would lower the peak of step 2, "))
    line = (programs.BEGIN + text).splitlines().index("    mixed = torch.softmax(x @ x.transpose(1, 2), -1) @ x") + 1
    said = " ".join(" ".join(shown[at + 1 :]).split())
    assert said.startswith("- about ") and f"/program.py:{line}: F.scaled_dot_product_attention(" in said
    assert "predicted for step 2, because step 3 did not end" in said and said.count(" - ") <= 2
    assert max(map(len, shown)) <= 80
    again = call("peak", "--at", "oom", "x.cmem").out
    assert " ".join(again.split()).endswith(said)
    estimate = cuptimem.estimate(report, fused_attention=True)
    assert (estimate.peak, estimate.bytes) == (advised.peak, best.bytes) and advised.note in estimate.notes


def test_json(recorded: Run, call: Run, tmp_path: Path) -> None:
    recorded(programs.LEAVES_THE_PROGRAM["wrapped"])
    done = call("peak", "--at", "oom", "--json", "x.cmem")
    document: dict[str, Any] = json.loads(done.out)
    (oom,) = document["ooms"]
    assert document["refused"] == 1 and (oom["device"], oom["requested"], oom["escaped"]) == ("cpu", ASKED, True)
    assert oom["allocated"] == 12_000 == sum(c["bytes"] for c in oom["contributors"]) and oom["rest_bytes"] == 0
    assert oom["reserved"] is oom["cached"] is oom["too_small"] is oom["free_on_device"] is oom["lacked"] is None
    (short,) = json.loads(call("summary", "--json", "x.cmem").out)["ooms"]
    assert short == {key: oom[key] for key in short}


class Odd(RuntimeError):
    @property
    def __context__(self) -> Any:  # type: ignore[override]  # as a program may write it
        raise ValueError

    def __str__(self) -> str:
        raise KeyError


@pytest.mark.parametrize("error", [Odd("x"), RuntimeError(Odd("x"))], ids=["its own class", "its argument"])
def test_an_exception_with_code_of_its_own_leaves_as_it_is(error: RuntimeError) -> None:
    with pytest.raises(RuntimeError) as raised, cuptimem.profile() as prof:
        raise error
    assert raised.value is error and not recorder.active() and prof.report.complete
