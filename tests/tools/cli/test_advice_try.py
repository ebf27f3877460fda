"""Trying changes of a program: names of changes, the view of what was found, and whole tries on the CPU."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cuptimem.cli import advice_try
from cuptimem.errors import Error
from cuptimem.output.text import text
from cuptimem.report.advice import Advice, LeakAtPeak, Proposal, Rejected
from cuptimem.report.leaks import Leak
from cuptimem.report.stacks import Frame
from cuptimem.simulation import as_json, changes, tries, try_imports, try_views
from cuptimem.simulation.tries import NOTHING, Tried
from tests.conftest import ROOT, Result, clean_environment
from tests.on_device.simulated.conftest import InOne, tries_in_one

MIB = 1 << 20


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("fused", [("fused", "")]),
        ("autocast", [("autocast", "bf16")]),
        ("checkpoint=blocks.*", [("checkpoint", "blocks.*")]),
        ("fused+checkpoint+batch=4", [("fused", ""), ("checkpoint", ""), ("batch", "4")]),
    ],
)
def test_changes_as_written(written: str, found: list[tuple[str, str]]) -> None:
    assert changes.parse(written) == found


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("autocsat", "no change 'autocsat' can be tried; there are zero_grad_late, set_to_none, "),
        ("", "no change '' can be tried"),
        ("fused=1", "fused takes no value"),
        ("batch", "batch takes a batch size, or NEW:OLD: batch=..."),
        ("batch=0", "batch takes a batch size, or NEW:OLD, at least 1, not '0'"),
        ("accumulate=1", "at least 2"),
        ("chunked_loss=x", "at least 2, not 'x'"),
        ("autocast=int8", "autocast takes bf16 or fp16, not 'int8'"),
        ("fused+fused", "fused+fused has fused twice"),
        ("sgd+adam8bit", "sgd and adam8bit do not go together: both replace the optimizer"),
        ("fused+no_foreach", "both replace the optimizer's temporaries"),
        ("batch=2+accumulate", "both replace the batch"),
    ],
)
def test_changes_that_there_are_not(written: str, said: str) -> None:
    with pytest.raises(Error) as caught:
        changes.parse(written)
    assert said in str(caught.value)


def test_usual_changes_have_all_that_they_need() -> None:
    training, evaluation = changes.usual(True), changes.usual(False)
    for name in (*training, *evaluation):
        assert changes.parse(name)
    assert "no_grad" in evaluation and "no_grad" not in training and "fused" not in evaluation
    assert changes.need_evaluation(["fused+no_grad"]) and not changes.need_evaluation(training)


FOUND = [
    Tried("", 1000 * MIB, 1100 * MIB, 0, steps=3),
    Tried("fused", 1000 * MIB, 1100 * MIB, 3, steps=3),
    Tried("autocast", 1050 * MIB, 1200 * MIB, 3, steps=3, write="half", frame=Frame("/w/a.py", "main", 4)),
    Tried("checkpoint=blocks.*", 600 * MIB, 700 * MIB, 36, steps=3),
    Tried("expandable", 1000 * MIB, 1010 * MIB, 1, steps=3),
    Tried("no_grad", 1000 * MIB, 1100 * MIB, 0, why_not="no model is called in evaluation mode", steps=3),
    Tried("in_place", None, None, 4, error="RuntimeError: modified by an inplace operation at train.py:4", steps=1),
    Tried("fused_attention", 1000 * MIB, 1100 * MIB, 0, why_not="attention by hand", steps=3),
]
SHOWN = """\
train.py on a simulated h100: peak 1000.0 MiB (1.1 GiB reserved) in 3 steps; 7 changes tried
a leak has 200.0 MiB of it (20 %): /w/a.py:7

free, but not tried: as predicted alone; why stands below
  change              saves       peak tried  predicted  reserved  where          write                         cost
  fused_attention  80.0 MiB  8 %           -  920.0 MiB         -  /w/model.py:9  scaled_dot_product_attention  none

trades: each with its cost
  change                   saves        peak tried  predicted    reserved  where      write        cost
  checkpoint=blocks.*  400.0 MiB  40 %   600.0 MiB  590.0 MiB   700.0 MiB
  half_model           300.0 MiB  30 %           -  700.0 MiB           -             .bfloat16()  numerics
  expandable                 0 B   0 %  1000.0 MiB          -  1010.0 MiB
  autocast             -50.0 MiB  -5 %     1.0 GiB          -     1.2 GiB  /w/a.py:4  half         numerics: 16 bits

tried, changes the peak by less than 2%: fused
does not work with this program: in_place: RuntimeError: modified by an inplace
  operation at train.py:4
not applied: no_grad: no model is called in evaluation mode
not applied: fused_attention: attention by hand
predicted, and not tried: half_model
What comes behind 3 steps, such as an evaluation, is not in these peaks:
  --steps 0 runs to the end, and so do --change no_grad and --change
  keep_evaluation
"""


def test_view() -> None:
    """What could not be tried is a row if the recording advises it: with its line, and without a figure of a try."""
    proposal = Proposal(
        "fused_attention",
        True,
        920 * MIB,
        80 * MIB,
        Frame("/w/model.py", "attend", 9),
        "scaled_dot_product_attention",
        "none",
        "rough",
    )
    half = Proposal("half_model", False, 700 * MIB, 300 * MIB, None, ".bfloat16()", "numerics", "rough")
    frame = Frame("/w/a.py", "main", 7)
    of = ("bytes", "cuda:0", 200 * MIB, 4, 50 * MIB, 1, 0, 3, "training", (frame,), (), (), "survivors", "", "high", "")
    advised = Advice("cuda:0", 1000 * MIB, 1, (proposal, half), leaks=(LeakAtPeak(200 * MIB, Leak(*of)),))
    predicted = {"checkpoint=blocks.*": 590 * MIB, "fused_attention": 920 * MIB}
    shown = text.render(try_views.blocks(FOUND, "train.py", "h100", predicted, advised, untried=(half,)), 140)
    assert [line.rstrip() for line in shown.splitlines()] == SHOWN.splitlines()


def test_view_of_whole_runs() -> None:
    """What comes behind is said only where a try ended at its steps."""
    for most, behind in ((3, True), (4, False), (None, False)):
        shown = text.render(try_views.blocks(FOUND, "train.py", "h100", {}, None, most), 140)
        assert ("What comes behind 3 steps" in shown, "in the whole run" in shown) == (behind, not behind)


def test_view_of_a_program_without_a_gpu() -> None:
    (line,) = text.render(
        try_views.blocks([Tried("", None, None, 0, NOTHING)], "train.py", "h100", {}), 120
    ).splitlines()
    assert line.endswith("To try it on the CPU: cuptimem advice --try --device cpu train.py")


def test_answer_as_json() -> None:
    """Each answer apart: a peak, nothing applied, an error; and what the page documents, no key more."""
    half = Proposal("half_model", False, 700 * MIB, 300 * MIB, None, ".bfloat16()", "numerics", "rough")
    answer = as_json.tries("h100", FOUND, {"checkpoint=blocks.*": 590 * MIB}, None, [half])
    assert [one["technique"] for one in answer["proposals"]] == ["half_model"] and answer["leaks"] == []
    rows = {one["change"]: one for one in answer["tried"]}
    assert answer["as_it_is"]["peak_bytes"] == 1000 * MIB and answer["device"] == "h100"
    checkpoint, no_grad, in_place = (rows[name] for name in ("checkpoint=blocks.*", "no_grad", "in_place"))
    assert (checkpoint["peak_bytes"], checkpoint["predicted_bytes"]) == (600 * MIB, 590 * MIB)
    assert not checkpoint["free"] and rows["fused"]["free"]
    assert (rows["autocast"]["write"], rows["autocast"]["frame"]["line"]) == ("half", 4)
    assert (no_grad["why_not"], no_grad["error"]) == ("no model is called in evaluation mode", None)
    assert in_place["peak_bytes"] is None and in_place["error"].startswith("RuntimeError") and not in_place["free"]
    page = (ROOT / "docs/json.md").read_text()
    part = page[page.index("With `--try`") : page.index("## `fragmentation`")]
    assert {*rows["fused"], *answer} == set(re.findall(r"`([a-z_]+)`", part))


def test_view_of_a_program_that_fails() -> None:
    failed = Tried("", None, None, 0, error="ValueError: no data", output="loading\n\x1b[31mno data\n")
    shown = text.render(try_views.blocks([failed], "train.py", "cpu", {}), 120)
    assert shown.splitlines() == [
        "train.py fails as it is, on the CPU: ValueError: no data",
        "  loading",
        "  \\x1b[31mno data",
    ]


def test_in_place_as_the_advice_has_it() -> None:
    """A module that a try put in place is no row where the advice does not know that nothing else reads its input; nor
    is what the advice has at lines where the try found it not."""
    proposal = Proposal("in_place", True, 1, 1, Frame("/w/model.py", "f", 9), "x.mul_()", "none", "exact")
    tried = Tried("in_place", 900 * MIB, 1000 * MIB, 3)
    has, has_not = (
        Advice("cuda:0", 1, 1, (proposal,)),
        Advice("cuda:0", 1, 1, (), (Rejected("in_place", "read later"),)),
    )
    assert advice_try._of_advice(tried, has) == tried
    silent = advice_try._of_advice(tried, has_not)
    assert (silent.peak_bytes, silent.why_not, silent.is_answer) == (None, "read later", False)
    elsewhere = replace(tried, peak_bytes=None, why_not="not there")
    assert advice_try._of_advice(elsewhere, has).error == "not there"


def test_imports_of_a_program(tmp_path: Path) -> None:
    """Of the program's own modules those that they import, nothing of Python's own, nothing that runs."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/__init__.py").write_text("import numpy.linalg\nfrom . import other\nraise SystemExit\n")
    (tmp_path / "train.py").write_text(
        "import os, torch\nfrom mine import x\ndef f():\n    from timm.layers import Mlp\n"
    )
    assert try_imports.of_program([str(tmp_path / "train.py")]) == [
        *("torch", "numpy.linalg", "timm.layers", "timm.layers.Mlp")
    ]
    assert try_imports.of_program(["-c", "import torch.nn as nn"]) == ["torch.nn"]
    assert try_imports.of_program(["-m", "mine"]) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to run"),
        (["nowhere.py"], "there is no script 'nowhere.py'"),
        (["--steps", "x", __file__], "takes a number, not 'x'"),
        (["--change"], "--change needs a value"),
    ],
)
def test_wrong_usage(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        advice_try.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_unknown_change_before_anything_runs() -> None:
    with pytest.raises(Error) as caught:
        advice_try.main(["--change", "autocsat", "--device", "cpu", __file__])
    assert "no change 'autocsat'" in str(caught.value)


def test_a_peak_that_differs_from_run_to_run() -> None:
    as_it_is, read = (Tried("", peak, None, 0) for peak in (100 << 20, 130 << 20))
    assert tries._unread(as_it_is, as_it_is) == ""
    assert "another peak (130.0 MiB, not 100.0 MiB), and so may each try" in tries._unread(as_it_is, read)
    assert "does not run" in tries._unread(as_it_is, Tried("", None, None, 0, "it ended"))


PROGRAM = """
import torch
from torch import nn

HAND = {hand!r}
model = nn.Sequential(nn.Linear(256, 256), nn.LeakyReLU(inplace=HAND == "in_place"), nn.Linear(256, 256))
make = torch.optim.SGD if HAND == "sgd" else torch.optim.AdamW
optimizer = make(model.parameters(), lr=0.01)
for step in range(5):
    loss = model(torch.zeros(1024, 256)).sum()
    if HAND != "zero_grad_late":
        optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if HAND == "zero_grad_late":
        optimizer.zero_grad()
"""
TURNS = """
import torch
from torch import nn

first, second = nn.Linear(1024, 1024), nn.Linear(1024, 1024)
makes, judges = torch.optim.SGD(first.parameters()), torch.optim.SGD(second.parameters())
for step in range(4):
    for optimizer, model in ((makes, first), (judges, second)):
        optimizer.zero_grad()
        model(torch.zeros(4, 1024)).sum().backward()
        optimizer.step()
"""
TRY = """
import dataclasses
found = []
for program, change, operators in given:
    operators = [("train.py", *one) for one in operators]
    found.append(dataclasses.asdict(server.run([program], change, operators=operators)))
"""
CALLS = """
import torch
import torch.nn.functional as F
x = torch.ones(1000, 1000, requires_grad=True)
y = x * 2
y = y * 3
z = F.relu6(torch.rand(1000, 1000) - y)
z = torch.add(torch.ones(1000, 1), z)
assert z[0, 0] == 1 and y[0, 0] == 6
"""


HANDS = ("sgd", "zero_grad_late", "in_place")
OPERATORS: tuple[tuple[tuple[int, str, str], ...], ...] = (
    ((6, "mul", "self"), (7, "hardtanh", "self"), (8, "add", "other")),
    ((5, "mul", "self"),),
    ((8, "add", "self"),),
    ((6, "sub", "self"),),
)


@pytest.fixture(scope="module")
def in_one(python: str) -> Iterator[InOne]:
    with tries_in_one(python, "cpu") as call:
        yield call


@pytest.fixture(scope="module")
def tried(in_one: InOne, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of the program as it is, and of each change, put in and by hand; then of the operators in place."""
    folder = tmp_path_factory.mktemp("tries")
    (folder / "train.py").write_text(CALLS)
    asked: list[tuple[str, str, object]] = []
    for hand in ("", *HANDS):
        (folder / f"{hand}.py").write_text(PROGRAM.format(hand=hand))
        asked += [(".py", hand, ()), (f"{hand}.py", "", ())]
    asked += [("train.py", "in_place", operators) for operators in OPERATORS]
    found: list[dict[str, Any]] = in_one(TRY, asked, folder)
    return found


@pytest.mark.torch
@pytest.mark.costly
def test_tries_on_the_cpu(tried: list[dict[str, Any]]) -> None:
    """The peak is that of cuptimem's recording: with the change put in, that of the change by hand to the byte."""
    found = tried[: -len(OPERATORS)]
    for injected, by_hand in zip(found[::2], found[1::2], strict=True):
        assert injected["error"] is None and not injected["why_not"], injected
        assert injected["peak_bytes"] == by_hand["peak_bytes"] and injected["reserved_bytes"] is None
    peaks = dict(zip(("", *HANDS), (one["peak_bytes"] for one in found[::2]), strict=True))
    parameters = 2 * (256 * 256 + 256) * 4
    saved = {"sgd": 2 * parameters, "zero_grad_late": 0, "in_place": 1}  # at least
    assert all(peaks[""] - peaks[hand] >= saved[hand] for hand in HANDS)


@pytest.mark.torch
@pytest.mark.costly
def test_operators_in_place(tried: list[dict[str, Any]]) -> None:
    """At their lines alone; what autograd or shapes forbid is an error, and what a line does not call not applied."""
    works, leaf, shape, other = tried[-len(OPERATORS) :]
    assert works["error"] is None and works["applied"] == 1 and works["peak_bytes"] > 0
    assert "leaf Variable that requires grad" in leaf["error"] and "doesn't match the broadcast shape" in shape["error"]
    assert other["error"] is None and "do not call the operators themselves" in other["why_not"]


@pytest.mark.torch
@pytest.mark.costly
def test_verb_on_the_cpu(in_one: InOne, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(hand=""))
    command = ("advice", "--try", "--device", "cpu", "--change", "sgd", "--change", "no_foreach", "train.py")
    done = in_one("found = verb(*given)", command, tmp_path)
    assert done["code"] == 0 and not done["err"], done["err"]
    lines = done["out"].splitlines()
    assert lines[0].startswith("train.py on the CPU: peak ") and lines[0].endswith(" in 3 steps; 2 changes tried")
    assert lines[2] == "trades: each with its cost"
    name, saves, _, share, _, tried, unit, *predicted = lines[4].split()[:9]
    assert name == "sgd" and predicted == [tried, unit] and float(saves) > 0 and int(share) > 0
    assert "not applied: no_foreach: no optimizer stepped that works on all parameters" in lines


@pytest.mark.torch
@pytest.mark.costly
def test_what_no_rule_predicts_has_its_line(in_one: InOne, tmp_path: Path) -> None:
    """Optimizers by turns: whose gradients they are is not recorded. The peak has those of both."""
    (tmp_path / "turns.py").write_text(TURNS)
    done = in_one("found = verb(*given)", ("advice", "--try", "--device", "cpu", "--json", "turns.py"), tmp_path)
    assert done["code"] == 0, done["err"]
    found = json.loads(done["out"])
    (late,) = (one for one in found["tried"] if one["change"] == "zero_grad_late")
    saved = found["as_it_is"]["peak_bytes"] - late["peak_bytes"]
    assert saved >= 1024 * 1024 * 4 and late["predicted_bytes"] is None and late["proposal"] is None
    assert late["write"] == "optimizer.zero_grad() right behind this line, not before the next backward pass"
    assert late["frame"]["line"] == 1 + TURNS.splitlines().index("        optimizer.step()")


@pytest.mark.torch
@pytest.mark.extended
def test_verb_where_the_program_fails(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')\nraise ValueError('no data')\n")
    options = ("--try", "--device", "cpu", "--change", "sgd", "train.py")
    failed = run("-m", "cuptimem", "advice", *options)
    assert failed.code == 5 and not failed.out
    assert failed.err.startswith("train.py fails as it is, on the CPU: ValueError: no data at train.py:2\n  hello\n")
    done = run("-m", "cuptimem", "advice", "--json", *options)
    assert done.code == 5 and json.loads(done.out)["as_it_is"]["error"] == "ValueError: no data at train.py:2"


def test_a_trace_before_try_is_wrong_usage(call: Callable[..., Result]) -> None:
    late = call("advice", "run.cmem", "--try", "train.py")
    assert late.code == 2 and "--try stands first" in late.err


@pytest.mark.torch
@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.extended)])
def test_a_signal_leaves_neither_folder_nor_process(tmp_path: Path, number: int) -> None:
    """In the middle of a try."""
    (tmp_path / "folders").mkdir()
    (tmp_path / "train.py").write_text(
        "import os, time\nwith open('new', 'w') as file:\n    file.write(str(os.getpid()))\n"
        "os.rename('new', 'pid')\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-m", "cuptimem", "advice", "--try", "--device", "cpu", "train.py"]
    environment = {**clean_environment(), "TMPDIR": str(tmp_path / "folders")}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    while not (tmp_path / "pid").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(240) == 128 + number
    assert not list((tmp_path / "folders").glob("cuptimem-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
