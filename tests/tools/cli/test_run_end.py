"""What `cuptimem run` leaves and prints when the program has ended: five lines, or one, or nothing at all."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from benchmarks.synthetic import write_synthetic
from cuptimem import cli
from cuptimem.cli import answer
from cuptimem.report.load import from_dict
from tests.conftest import Result
from tests.tools.cli import sample

Run = Callable[..., Result]
RUN = ("-m", "cuptimem", "run", "-o", "a.cmem")
TORCH = "import torch\nx = torch.zeros(1 << 20)\ny = torch.ones(1 << 18)\n"
END = (
    r"cuptimem: wrote a\.cmem \(.*\); see: cuptimem summary a\.cmem\n"
    r"cuptimem: peak 5\.0 MiB on cpu.*\n"
    r"cuptimem: +4\.0 MiB  80 %  .*program\.py:2 <module>\n"
    r"cuptimem: +1\.0 MiB  20 %  .*program\.py:3 <module>\n"
    r"cuptimem: leaks: .*\n"
)


def run_torch(run: Run, folder: Path, after: str, *options: str, **how: str) -> Result:
    (folder / "program.py").write_text(TORCH + after)
    return run(*RUN, *options, "program.py", env=how)


@pytest.mark.torch
def test_five_lines_behind_all_that_the_program_says(run: Run, tmp_path: Path) -> None:
    """A SIGCHLD handler that reaps whatever ends sees no child of ours, nor does input of ours go."""
    said = "import atexit, os, signal, sys\natexit.register(lambda: print('exit', file=sys.stderr))\n"
    reaps = "signal.signal(signal.SIGCHLD, lambda *a: print('reaped', os.wait()))\nos.environ['PYTHONINSPECT'] = '1'\n"
    done = run_torch(run, tmp_path, said + reaps + "sys.exit(7)\n")
    assert (done.code, done.out) == (7, "")
    assert re.fullmatch("exit\n" + END, done.err), done.err


@pytest.mark.torch
def test_an_interrupted_program_has_its_five_lines(forked: Run, tmp_path: Path) -> None:
    """Who stops a run wants to know what it had; a second Ctrl-C ends what makes the lines."""
    done = run_torch(forked, tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGINT)\n")
    assert done.code == -signal.SIGINT
    traceback, _, end = done.err.partition("\nKeyboardInterrupt\n")
    assert traceback.startswith("Traceback") and re.fullmatch(END, end), done.err


@pytest.mark.torch
def test_an_interrupt_stays_the_exit_status(forked: Run, tmp_path: Path) -> None:
    """Python asks what the last source text that ran ended with, and what looks for a leak's line runs some."""
    (tmp_path / "program.py").write_text(
        "import torch\nmodel, kept = torch.nn.Linear(64, 64), []\nsgd = torch.optim.SGD(model.parameters())\n"
        "for _ in range(12):\n    kept.append(torch.ones(64, 64))\n    model(kept[-1]).sum().backward()\n"
        "    sgd.step()\nraise KeyboardInterrupt\n"
    )
    done = forked(*RUN, "program.py")
    assert (done.code, "1 leak in 12 steps" in done.err) == (-signal.SIGINT, True), done.err


KINDS = """
class Kind(type):
    __name__ = property(lambda _: print("the program's code"))
class Fails(Exception, metaclass=Kind): pass
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("last", "exception"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        (f"{KINDS}raise Fails('secret')", "Fails"),
        ("sys.exit('an error of its own')", None),
        ("try: 1 / 0\nexcept ZeroDivisionError: pass", None),
    ],
    ids=["error", "interrupt", "metaclass", "exit", "caught"],
)
@pytest.mark.parametrize("form", ["run", "profile"])
def test_the_exception_that_ended_it_is_named(
    forked: Run,
    tmp_path: Path,
    last: str,
    exception: str | None,
    form: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "import sys\n" + TORCH + last
    if form == "profile":
        body = "\n    ".join(text.splitlines())
        text = f"import cuptimem\nwith cuptimem.profile('a.cmem'):\n    {body}"
    (tmp_path / "s.py").write_text(text)
    done = forked(*(RUN if form == "run" else ()), "s.py")
    report = cuptimem.open(tmp_path / "a.cmem")
    assert (done.out, report.environment.get("exception")) == ("", exception)
    assert cli.main(["summary", str(tmp_path / "a.cmem")]) == 0
    shown = capsys.readouterr().out
    assert f"ended by {exception}" in shown if exception else "ended by" not in shown
    assert b"secret" not in (tmp_path / "a.cmem").read_bytes()


CUT = """
model = torch.nn.Linear(1 << 10, 1 << 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(10):
    loss = model(torch.randn(1 << (4 if i < 9 else 12), 1 << 10)).sum()
    if i == 9:
        {}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("last", "exception"),
    [("torch.empty(1 << 50)", "RuntimeError"), ("raise KeyboardInterrupt", "KeyboardInterrupt")],
    ids=["oom", "interrupt"],
)
def test_the_step_that_did_not_end_is_the_last(
    forked: Run, tmp_path: Path, last: str, exception: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the largest batch, and the peak: all views give it one number, and no rate has it."""
    run_torch(forked, tmp_path, CUT.format(last))
    report = cuptimem.open(tmp_path / "a.cmem")
    step = report.steps[-1]
    assert (step.index, step.incomplete, step.peak, report.loops) == (9, True, report.peak.bytes, {"training": 9})
    assert report.peak.step == 9 and all(oom.step == 9 for oom in report.ooms)
    assert "in step 9" in answer.lines(report)[0]
    for verb in ("steps", "summary"):
        assert cli.main([verb, str(tmp_path / "a.cmem")]) == 0
        assert f"step 9 did not end: {exception}; cpu peak " in capsys.readouterr().out
    assert cli.main(["peak", "--step", "9", str(tmp_path / "a.cmem")]) == 0
    assert "at the peak, in step 9" in capsys.readouterr().out
    assert cli.main(["steps", "--json", str(tmp_path / "a.cmem")]) == 0
    rows = json.loads(capsys.readouterr().out)["steps"]
    assert [row["index"] for row in rows if row["incomplete"]] == [9]


@pytest.mark.torch
def test_only_the_first_rank_prints_five_lines(forked: Run, tmp_path: Path) -> None:
    done = run_torch(forked, tmp_path, "", "-o", "a-{rank}.cmem", RANK="1", WORLD_SIZE="2")
    assert done.err.count("cuptimem: wrote") == 1 and "cuptimem: peak" not in done.err, done.err


@pytest.mark.torch
@pytest.mark.parametrize(
    "after",
    [
        "from cuptimem.record import autostart\nautostart._EVENTS = 1\n",
        "from cuptimem.record import own_process\nrun = own_process.run\n"
        "own_process.run = lambda *how: run(*how) or -9\n",
    ],
    ids=["many events", "killed"],
)
def test_one_line_where_the_others_would_take_too_much(forked: Run, tmp_path: Path, after: str) -> None:
    done = run_torch(forked, tmp_path, after + "raise SystemExit(7)\n")
    assert done.code == 7 and re.fullmatch(END.partition("cuptimem: peak")[0], done.err), done.err


@pytest.mark.torch
def test_paths_are_seen_from_where_it_was_started(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/program.py").write_text(TORCH + "import os\nos.chdir('d')\n")
    done = run(*RUN, "d/program.py")
    assert re.fullmatch(END.replace("  .*p", "  d/p"), done.err), done.err


@pytest.mark.torch
def test_only_the_first_process_has_five_lines(forked: Run, tmp_path: Path) -> None:
    child = "import os, subprocess, sys\nif os.fork() == 0: sys.exit()\nos.wait()\n"
    started = "subprocess.run([sys.executable, '-c', 'import torch; torch.ones(9)'], check=True)\n"
    done = run_torch(forked, tmp_path, child + started, "--follow")
    assert done.err.count("cuptimem: wrote") == 3 and done.err.count("cuptimem: peak") == 1, done.err


def test_lines_of_reports(tmp_path: Path) -> None:
    raw = sample.analysis(tmp_path)
    one = answer.lines(from_dict(None, raw))
    assert (one[0], one[3]) == ("peak 4.0 KiB on cpu in step 1", "leaks: not judged, too few steps (8 are needed)")
    # 2.9 KiB of it forward, the rest backward: a line is named once.
    assert one[1].split()[:4] == ["3.9", "KiB", "98", "%"] and one[1].endswith("train.py:5 step")
    raw["devices"] = [{**raw["devices"][0], "device": f"cuda:{number}"} for number in range(5)]
    said = answer.lines(from_dict(None, raw))[0]
    assert said == "peak 4.0 KiB on cuda:0, 4.0 KiB on cuda:1, 4.0 KiB on cuda:2, others on 2 devices"
    raw["devices"] = []
    assert answer.lines(from_dict(None, raw)) == []


def test_four_lines_fit_into_a_page_whatever_their_names_are(tmp_path: Path) -> None:
    """A pipe may be that small, and nobody reads it before they have been written."""
    widest = "\U000e0041" * 300
    text = "".join(f"cuptimem: {answer.shown(line)}\n" for line in (widest, widest, "表" * 400, widest))
    assert 3900 < len(text.encode()) <= 4096


def test_the_holder_at_the_end_of_a_long_line_stays() -> None:
    line = f"1 leak: {'a_long_name_of_a_folder/' * 12}train.py:22 about +1.0 MiB a step, held by losses in train()"
    assert len(line) > 300 and answer.shown(line) == line


def test_lines_of_a_trace_with_categories(tmp_path: Path) -> None:
    path = tmp_path / "run.cmem"
    write_synthetic(str(path), 20_000, 1)
    lines = answer.lines(cuptimem.open(path))
    assert "; most of it: before start " in lines[0] and " grew in every step" in lines[3]


def test_the_kernel_bounds_the_time_and_spares_the_program(run: Run, tmp_path: Path) -> None:
    """Past its two seconds nothing is printed: the limit is on the process itself, which goes first without memory."""
    program = (
        "import resource, signal, sys\nfrom cuptimem.cli import answer\n"
        "def analyze(path):\n"
        "    open_ = signal.SIGALRM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "    print(resource.getrlimit(resource.RLIMIT_CPU), 0 < signal.alarm(0) <= 20, open_, end=' ')\n"
        "    sys.exit()\n"
        "answer.analyze = analyze\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "try:\n    answer.main()\nfinally:\n    print(open('/proc/self/oom_score_adj').read(), end='')\n"
    )
    assert run("-c", program, "x.cmem").out == "(2, 2) True True 1000\n"


@pytest.mark.parametrize(
    "program",
    [["-m", "nothere"], ["-m", "json.nothere"], ["d"], ["syntax.py"], ["import.py"], ["-c", "1 +"]],
    ids=" ".join,
)
def test_a_program_that_never_began_leaves_no_trace(run: Run, tmp_path: Path, program: list[str]) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "syntax.py").write_text("def (")
    (tmp_path / "import.py").write_text("import nothere\n")
    bare, done = run(*program), run(*RUN, "--open", *program)
    assert (done.code, done.out, done.err) == (bare.code, bare.out, bare.err)
    assert done.code != 0 and not list(tmp_path.glob("*.cmem*"))


def test_a_trace_that_is_replaced_by_nothing_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.cmem").write_bytes(b"before")
    done = run(*RUN, "-f", "-m", "nothere")
    assert done.err.splitlines()[1:] == ["cuptimem: the program failed before it allocated; a.cmem from before is gone"]
    assert not (tmp_path / "a.cmem").exists()


def test_a_script_that_is_not_there_leaves_no_trace(run: Run, tmp_path: Path) -> None:
    done = run("nothere.py", env={"CUPTIMEM": "1"})
    assert done.code == 2 and "cuptimem" not in done.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["-c", "pass"], 0),
        (["-c", "1 / 0"], 1),
        (["-c", "try:\n  import nothere\nexcept ImportError: exit(3)"], 3),
        (["-m", "cProfile", "ok.py"], 0),
    ],
    ids=["nothing", "error", "caught", "module"],
)
def test_a_program_that_ran_leaves_its_trace(run: Run, tmp_path: Path, program: list[str], code: int) -> None:
    (tmp_path / "ok.py").write_text("")
    done = run(*RUN, *program)
    assert done.code == code and cuptimem.open(tmp_path / "a.cmem").complete
    assert done.err.count("cuptimem: ") == 1


def test_a_forked_child_has_begun_wherever_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import os\nos.mkdir('d')\nos.chdir('d')\nif os.fork(): os.wait()\n")
    assert run(*RUN, "--follow", "s.py").code == 0
    assert len(list(tmp_path.rglob("*.cmem"))) == 2


@pytest.mark.torch
def test_a_program_that_fails_in_a_late_import_keeps_what_it_recorded(forked: Run, tmp_path: Path) -> None:
    assert run_torch(forked, tmp_path, "import nothere").code == 1
    assert cuptimem.open(tmp_path / "a.cmem").allocations == 2
