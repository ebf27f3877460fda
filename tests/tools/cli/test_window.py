"""cuptimem window, start and stop: one line for what cannot be, and a trace that can be read whatever happens."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import cuptimem
from cuptimem.cli import asking
from tests.conftest import Result
from tests.record.on_demand.conftest import Program, runtime, start, wait_for

__all__ = ["runtime", "start"]

Start = Callable[..., Program]
Run = Callable[..., Result]

IDLE = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n"


@pytest.fixture
def program(start: Start) -> Program:
    program = start(IDLE)
    assert program.line() == "ready"
    return program


def _ask(run: Run, verb: str, *words: object, cwd: Path | None = None) -> Result:
    return run("-m", "cuptimem", verb, *map(str, words), cwd=cwd)


def test_start_and_stop(run: Run, program: Program, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    begun = _ask(run, "start", program.pid, "-o", "a.cmem", cwd=elsewhere)
    assert (begun.code, begun.out) == (0, "")
    assert begun.err == f"cuptimem: recording process {program.pid} into a.cmem; end it: cuptimem stop {program.pid}\n"
    second = _ask(run, "window", program.pid)
    assert second.code == 1 and second.out == ""
    assert second.err.startswith(f"cuptimem: process {program.pid}: a window without an end is open already, for ")
    ended = _ask(run, "stop", program.pid, "--json")
    assert ended.code == 0 and json.loads(ended.out)["complete"]
    assert cuptimem.open(elsewhere / "a.cmem").complete, "-o is of this command's folder"
    assert _ask(run, "stop", program.pid).err == f"cuptimem: process {program.pid}: no window is open\n"
    exists = _ask(run, "start", program.pid, "-o", "a.cmem", cwd=elsewhere)
    assert exists.code == 1 and "a.cmem exists; choose another name" in exists.err
    assert _ask(run, "window", program.pid, "-f", "-o", "a.cmem", "--seconds", 0.1, cwd=elsewhere).code == 0
    for _ in range(2):
        assert _ask(run, "window", program.pid, "--seconds", 0.1, cwd=elsewhere).code == 0
    names = {path.name for path in elsewhere.iterdir()}
    assert names == {"a.cmem", *(f"cuptimem-program.{program.pid}{suffix}.cmem" for suffix in ("", "-2"))}


def test_processes_that_cannot_be_asked(run: Run, start: Start) -> None:
    ended = subprocess.Popen(["true"])
    wait_for(lambda: asking.state(ended.pid) == "Z")
    assert _ask(run, "window", ended.pid).err == f"cuptimem: process {ended.pid} has ended\n"
    ended.wait()
    gone = _ask(run, "stop", ended.pid)
    assert (gone.code, gone.err) == (1, f"cuptimem: there is no process {ended.pid}\n")
    plain = start(IDLE, env={"CUPTIMEM": ""})
    plain.line()
    assert (
        _ask(run, "stop", plain.pid).err == f"cuptimem: process {plain.pid} is not in standby, so no window is open\n"
    )
    assert _ask(run, "window", "0").code == 2 and _ask(run, "window").code == 2


def is_stopped(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(") ")[2].startswith("T")


def test_a_process_that_is_stopped_opens_no_window_later(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cuptimem import cli

    monkeypatch.setattr(asking, "PATIENCE", 0.3)
    monkeypatch.chdir(tmp_path)
    os.kill(program.pid, signal.SIGSTOP)
    wait_for(lambda: all(map(is_stopped, Path(f"/proc/{program.pid}/task").iterdir())))  # it takes its time
    try:
        assert cli.main(["window", str(program.pid), "-o", "late.cmem"]) == 1
        said = f"process {program.pid} does not answer: it is stopped (kill -CONT {program.pid}); no window was opened"
        assert capsys.readouterr().err == f"cuptimem: {said}\n"
    finally:
        os.kill(program.pid, signal.SIGCONT)
    with program.connect() as end:
        end.sendall(b"verb=stop\0\n")
        assert end.recv(4096).endswith(b"message=no window is open\0\n")
    assert not (tmp_path / "late.cmem").exists()


@pytest.mark.parametrize("how", ["killed", "ends", "interrupted", "gone"])
def test_a_window_that_ends_sooner(python: str, program: Program, tmp_path: Path, how: str) -> None:
    asked = subprocess.Popen(
        [python, "-m", "cuptimem", "window", str(program.pid), "--seconds", "1000", "-o", "run.cmem"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert asked.stderr is not None
    assert asked.stderr.readline() == f"cuptimem: recording process {program.pid} into run.cmem; Ctrl-C ends it\n"
    if how == "killed":
        program.process.kill()
    elif how == "ends":
        program.end()
    elif how == "interrupted":
        asked.send_signal(signal.SIGINT)
    else:
        asked.kill()
        asked.communicate()
        wait_for(lambda: cuptimem.open(tmp_path / "run.cmem").complete)
        return
    out, err = asked.communicate(timeout=120)
    assert asked.returncode == 0, err
    died = f"cuptimem: process {program.pid} ended during the window; the trace has everything up to then\n"
    assert err == (died if how == "killed" else "")
    assert "program.py" in out
    # Without PyTorch a killed process has no ring: its trace is read as recovered.
    assert cuptimem.open(tmp_path / "run.cmem").complete == (how != "killed")
