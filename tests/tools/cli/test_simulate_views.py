"""What `cuptimem simulate` and cuptimem.simulate() show, over answers made by hand."""

import functools
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from cuptimem import interpreter
from cuptimem.cli import simulate as command
from cuptimem.output import json
from cuptimem.output.text import text, views
from cuptimem.record import process_info
from cuptimem.report.advice import Advice, LeakAtPeak, Proposal
from cuptimem.report.leaks import Leak
from cuptimem.report.model import Frame, HostRead
from cuptimem.simulation import api, as_json, assemble
from cuptimem.simulation import views as simulate_views
from cuptimem.simulation.environment import TorchBuild
from cuptimem.simulation.questions import Answer
from cuptimem.simulation.result import Attempt, Interval, Modelled, Need, Simulation
from tests.tools.cli import simulated_runs as runs
from tests.tools.cli.simulated_runs import GIB, LINE, SETUP, facts

MIB = 1 << 20
BUILD = TorchBuild("2.14.1+cu130", "13.0", None)


@pytest.fixture
def made() -> Callable[..., Simulation]:
    """An answer over one run; what is said to be different of the run by main=."""

    def call(verdict: str = "fits", main: dict[str, object] | None = None, **more: object):
        answer = Answer(verdict, "so it is", (), facts(**(main or {})))  # type: ignore[arg-type]
        return replace(assemble.simulation(answer, SETUP, BUILD, ()), **more)  # type: ignore[arg-type]

    return call


def test_printed_it_is_what_the_command_line_shows(made):
    one = made()
    assert str(one) == text.render(simulate_views.simulation(one))
    assert str(one).splitlines()[:3] == [
        "simulated on h100, 24.0 GiB · train.py · 1.5 s · torch 2.14.1+cu130",
        "",
        "FITS in 24.0 GiB: so it is",
    ]
    further = Attempt("high end", "ran", GIB, 2.0), Attempt("no limit", "ran", GIB, 4.0)
    assert str(made(attempts=further)).startswith("simulated on h100, 24.0 GiB · train.py · 7.5 s of 3 runs ·")


def test_what_would_lower_the_peak_of_what_does_not_fit(made):
    row = Proposal("sgd", False, 600 * MIB, 400 * MIB, None, "SGD", "another optimizer", "exact")
    one = made("does not fit", advised=Advice("cuda:0", 1000 * MIB, 1, (row,)))
    assert "What would lower it, each alone: sgd 40 %\n  cuptimem advice --try has" in str(one)
    frame = Frame("/w/a.py", "main", 7)
    of = ("bytes", "cuda:0", 250 * MIB, 4, 50 * MIB, 1, 0, 3, "training", (frame,), (), (), "survivors", "", "high", "")
    leaking = replace(one.advised, leaks=(LeakAtPeak(250 * MIB, Leak(*of)),))
    other = made("does not fit", advised=leaking)
    assert "a leak has 250.0 MiB of it (25 %)" in str(other)
    assert [row["bytes"] for row in as_json.simulate(other)["leaks"]] == [250 * MIB]
    assert [row["technique"] for row in as_json.simulate(one)["proposals"]] == ["sgd"]
    assert "What would lower" not in str(made()) and as_json.simulate(made())["proposals"] == []


def test_a_function_has_its_own_name(made, monkeypatch):
    def step() -> None: ...

    class Job:
        def __call__(self) -> None: ...

    outer = "test_a_function_has_its_own_name"
    assert api._name(step) == api._name(functools.partial(step)) == f"{outer}.step" and api._name(Job()).endswith("Job")
    assert str(made(name="step")).startswith("simulated on h100, 24.0 GiB · step ·")
    monkeypatch.setattr(api, "_pickle", lambda *words: None)
    command_line = ["python", *api._program(step, (), "/folder")]
    assert interpreter.script_of(command_line) == f"{outer}.step"


def test_the_table_of_a_run_that_failed_says_so(made):
    failed = str(made("does not fit", {"refused": 2}))
    assert (
        "The run in 24.0 GiB, up to its failure\n  device" in failed
        and "the driver refused 2 calls on cuda:0; PyTorch calls again" in failed
    )
    assert "up to its failure" in str(made("fits with settings")) and "up to its failure" not in str(made())


def test_a_need_that_reads_the_same_at_both_ends_is_one_number(made):
    need = Need("cuda:0", 30 * GIB, 30 * GIB + 9, False)
    assert "  it needs 30.0 GiB on cuda:0\n" in str(made("does not fit", need=need))
    shown = str(made("does not fit", need=replace(need, high=31 * GIB)))
    assert "  it needs between 30.0 GiB and 31.0 GiB on cuda:0:\n" in shown


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0, 0, "0 B"),
        (0, 32 * MIB, "0 B to 32.0 MiB"),
        (GIB, 2 * GIB, "1.0 to 2.0 GiB"),
        (900 * MIB, 2 * GIB, "900.0 MiB to 2.0 GiB"),
        (GIB, GIB + 1, "1.0 GiB"),
        (GIB, None, "at least 1.0 GiB"),
    ],
)
def test_intervals(low, high, shown):
    assert simulate_views.interval(Interval(low, high)) == shown


def test_what_is_modelled_is_never_an_empty_cell(made):
    rows = (Modelled("nothing", 0, 0, 1), Modelled("not run", 0, None, 1), Modelled("event", 5, None, 1))
    shown = str(made(modelled=rows))
    assert "nothing                    0 B\n" in shown
    assert "0 B; high end not run" in shown and "5 B; high end not run" in shown


def test_a_workspace_that_was_given_has_no_high_end_to_run():
    main = facts(modelled=(runs.modelled("cuDNN convolution workspace", GIB),))
    answer = Answer("fits", "", (), main)
    given = assemble.simulation(answer, replace(SETUP, conv_workspace=GIB), BUILD, ())
    assert given.modelled[-1].high_bytes == GIB
    assert assemble.simulation(answer, SETUP, BUILD, ()).modelled[-1].high_bytes is None


def test_an_assumption_without_a_line(made):
    row = replace(runs.assumption(), file="", line=0, function="")
    one = made(assumptions=(row,))
    assert "(in backward, no Python line)" in str(one) and ":0" not in str(one).replace("cuda:0", "")
    assert "share or mean" in str(one)
    (written,) = as_json.simulate(one)["assumptions"]
    assert (written["file"], written["line"], written["function"]) == (None, None, None)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are seen from there."""
    monkeypatch.setattr(os, "getcwd", lambda: "/home")


def test_reads_of_one_line_are_one_row(made):
    inner = Frame("/usr/lib/python3.11/site-packages/torch/_tensor.py", "item", 7)
    other = HostRead("cuda:0", 2, 8, (inner, LINE))
    reads = (runs.host_read(31, 4), runs.host_read(30, 3), other, runs.host_read(40, written=True))
    one = made(host_reads=reads)
    shown = str(one)
    assert shown.count("u/train.py:30") == shown.count("u/train.py:31") + 1 == 2  # one of them is the peak's
    assert shown.index("      5   20 B  u/train.py:30") < shown.index("      4   16 B  u/train.py:31")
    assert len(as_json.simulate(one)["host_reads"]) == 4


def test_eighty_columns_are_enough(made):
    top = Interval(10 * GIB, 11 * GIB)
    one = made("does not fit", need=Need("cuda:0", 30 * GIB, 31 * GIB, False), assumptions=(runs.assumption(),))
    device = replace(one.devices[0], allocated=top, reserved=top, used=top, refused=5)
    reads = (runs.host_read(30, 1000), runs.host_read(40, 1000, written=True))
    unknown = tuple(runs.read(kind, 30, 1000, library=80) for kind in ("integer", "flag", "branch", "unfollowed float"))
    lines = str(replace(one, devices=(device,), host_reads=reads, reads=unknown)).splitlines()
    assert max(map(len, lines)) <= 80, max(lines, key=len)


def test_trust_reads_is_a_flag():
    read = command.parser().parse_before_program
    assert read(["--trust-reads", "s.py"]).trust_reads and not read(["s.py"]).trust_reads


# --- traces that simulate has recorded ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"CUPTIMEM_SIM_MEMORY": str(22 * GIB)}, "l4, 22.0 GiB"),
        ({"CUPTIMEM_SIM_MEMORY": str(512 * MIB), "CUPTIMEM_SIM_DEVICES": "2"}, "2 x l4, 512.0 MiB"),
        ({"LD_PRELOAD": "/other.so", "CUPTIMEM_SIM_MEMORY": str(22 * GIB)}, None),
    ],
)
def test_a_recording_says_that_its_device_is_simulated(monkeypatch, variables, said):
    for name in [name for name in os.environ if name.startswith("CUPTIMEM_SIM")]:
        monkeypatch.delenv(name)
    base = {"LD_PRELOAD": "/lib/libcuptimem_sim.so:/other.so", "CUPTIMEM_SIM_DEVICE": "l4"}
    for name, value in {**base, **variables}.items():
        monkeypatch.setenv(name, value)
    assert process_info.environment(0).get("simulated") == said


def test_views_of_such_a_trace_say_so():
    report = facts().report
    assert report is not None
    report = replace(
        report,
        environment={**report.environment, "simulated": "l4, 22.0 GiB"},
        host_reads=(runs.host_read(30, 3), runs.host_read(40, 4, written=True)),
    )
    line = "! 3 host reads of values that no kernel has computed; `cuptimem summary --json` lists them"
    for blocks in (views.summary(report), views.peak(report, report.peaks, 5)):
        shown = text.render(blocks).splitlines()
        assert " · simulated l4, 22.0 GiB" in shown[0] and line in shown
    assert json.summary(report)["environment"]["simulated"] == "l4, 22.0 GiB"
    assert "host read" not in text.render(views.summary(replace(report, host_reads=())))


def test_the_librarys_lines_that_read_stand_below_the_users(made):
    """As a line's parts do: trainer.train() reads everything, and says nothing."""
    call = Frame("/home/u/train.py", "main", 9)

    def read(file: str, line: int, count: int) -> HostRead:
        below = Frame(f"/v/lib/python3.12/site-packages/{file}", "step", line)
        return HostRead("cuda:0", count, 4 * count, (below, call))

    own = HostRead("cuda:0", 1, 4, (LINE,))
    one = made(host_reads=(read("trainer/loop.py", 30, 6), read("trainer/loop.py", 41, 3), own))
    shown = str(one)
    rows = [line.split()[:4] for line in shown.splitlines() if line.strip()[:2] in ("9 ", "1 ")]
    assert rows == [["9", "36", "B", "u/train.py:9"], ["1", "4", "B", rows[1][3]]]
    assert "of which 6 at trainer/loop.py:30, 3 at trainer/loop.py:41" in shown
