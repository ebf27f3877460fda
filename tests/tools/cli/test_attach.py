"""cuptimem window on a process that is not in standby: its Python or gdb brings it there, or one line says why not."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cuptimem.cli import asking, reaching
from cuptimem.errors import Error
from tests.conftest import Result
from tests.record.on_demand.conftest import PATIENCE, Program, runtime, start

__all__ = ["runtime", "start"]

Start = Callable[..., Program]
Run = Callable[..., Result]

PLAIN = {"CUPTIMEM": ""}
BUSY = """\
import sys, threading
numbers, goes_on = [], True

def work():
    while goes_on:
        numbers.append(bytearray(5000))
        del numbers[:-50]

thread = threading.Thread(target=work)
thread.start()
print("ready", flush=True)
while sys.stdin.readline() != "end\\n":
    for _ in range(2000):
        work_done = sum(range(1000))
print(sorted(name for name in globals() if "cuptimem" in name.lower() or name in ("standby", "error")), flush=True)
goes_on = False
thread.join()
"""
SPINS = """\
import sys, threading, time
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
while True:
    sum(range(1000))
    time.sleep(0.001)  # gives Python's lock away, as every operation of PyTorch does
"""

BY_PYTHON = sys.version_info >= (3, 14)
attaches = pytest.mark.skipif(
    os.geteuid() != 0 or not (BY_PYTHON or shutil.which("gdb")),
    reason="needs the right to trace, and gdb before Python 3.14",
)
remote = pytest.mark.skipif(not BY_PYTHON, reason="sys.remote_exec is 3.14+")


@attaches
def test_a_busy_program_is_brought_into_standby(run: Run, start: Start) -> None:
    program = start(SPINS, env=PLAIN)
    program.line()
    done = run("-m", "cuptimem", "window", str(program.pid), "--seconds", "0.2")
    assert done.code == 0, done.err
    assert done.err.splitlines()[0] == f"cuptimem: process {program.pid} is not in standby: bringing it there"
    assert "program.py" in done.out
    again = run("-m", "cuptimem", "window", str(program.pid), "--seconds", "0.2")
    assert again.code == 0 and "bringing" not in again.err
    assert program.process.poll() is None


@attaches
@pytest.mark.extended
def test_many_attaches_to_threads_that_allocate(start: Start) -> None:
    program = start(BUSY, env=PLAIN)
    program.line()
    for _ in range(10):
        if BY_PYTHON:
            assert reaching._by_python(program.pid, sys.executable, "FIRST; import sys") == ""
        else:
            why = reaching._by_gdb(program.pid, "import sys")
            assert why in ("", "none of its threads sleeps at this moment; ask again")
    assert program.process.stdin is not None
    program.process.stdin.write("go on\nend\n")
    program.process.stdin.flush()
    assert program.line() == "[]", "nothing of it is in the program's module"
    assert program.process.wait(PATIENCE) == 0


@attaches
def test_an_environment_without_cuptimem_is_said(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SPINS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    try:
        with pytest.raises(Error, match=f"the environment of process {process.pid} has no cuptimem"):
            reaching.socket_of(process.pid)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def _refusal(pid: int) -> str:
    with pytest.raises(Error) as refused:
        reaching.socket_of(pid)
    assert asking.listening(pid) is None
    return str(refused.value)


WAITS = """\
import sys
print("ready", flush=True)
sys.stdin.readline()
print([name for name in globals() if not name.startswith("__")], flush=True)
sys.stdin.read()
"""


@remote
@attaches
def test_a_program_that_comes_late_is_in_standby_then_and_no_file_stays(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaching, "_PATIENCE", 0.2)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    program = start(WAITS, env=PLAIN)
    program.line()
    assert "came to no instruction of Python in 0 s" in _refusal(program.pid)
    assert program.process.stdin is not None
    program.process.stdin.write("go on\n")
    program.process.stdin.flush()
    assert program.line() == "['sys']", "nothing of it is in the program's module"
    assert asking.listening(program.pid) is not None
    assert list((tmp_path / "tmp").iterdir()) == []


@remote
@attaches
@pytest.mark.parametrize(
    ("options", "more"), [(["-X", "disable-remote-debug"], {}), ([], {"PYTHON_DISABLE_REMOTE_DEBUG": "1"})]
)
def test_a_python_that_refuses_remote_debugging_is_not_brought_there(
    start: Start, options: list[str], more: dict[str, str]
) -> None:
    program = start(SPINS, *options, env=PLAIN | more)
    program.line()
    assert "(a Python with -X disable-remote-debug refuses, too)" in _refusal(program.pid)


@pytest.mark.skipif(BY_PYTHON, reason="has no need of gdb")
def test_refusals_say_what_to_do(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    program = start(SPINS, env=PLAIN)
    program.line()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda name: None)
        assert _refusal(program.pid).endswith(
            "before Python 3.14 that needs gdb, which is not installed (apt-get install gdb); "
            "start it with CUPTIMEM=standby in its environment"
        )
    if shutil.which("gdb") is None:
        pytest.skip("needs gdb")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(0x4206, program.pid, None, None) != 0:  # PTRACE_SEIZE
        pytest.skip("may not trace")
    tracer = f"process {os.getpid()} traces it already (a debugger, strace)"
    # Another thread of a test may be the tracer.
    assert tracer in _refusal(program.pid) or f"process {threading.get_native_id()} traces it" in _refusal(program.pid)


def test_what_is_no_python_is_refused() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    try:
        assert "which is no Python that cuptimem knows" in _refusal(process.pid)
    finally:
        process.kill()
        process.wait()
