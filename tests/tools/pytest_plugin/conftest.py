"""Interpreters with pytest and this plugin, and suites that note in which process they ran."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import default_plugins

from tests.conftest import ROOT, clean_environment
from tests.forkserver import Forks
from tests.on_device.simulated.conftest import sim_python
from tests.tools.pytest_plugin.runs import MemorySuite, environment_of_runs, run_pytest

__all__ = ["sim_python"]

CONSOLE_SCRIPT = """\
#!{python}
import sys
from importlib.metadata import entry_points
if __name__ == "__main__":
    (found,) = entry_points(group="console_scripts", name="pytest")
    sys.exit(found.load()())
"""

# Notes the process that imports it: pytest's, each worker's.
NOTE = """\
import json, os, sys

def pytest_addoption(parser):
    parser.addoption("--of-the-conftest", action="store_true")

def note(who):
    with open("/proc/self/maps") as file:
        simulated = "libcuptimem_sim.so" in file.read()
    with open(os.environ["NOTES"], "a") as file:
        print(json.dumps({
            "who": who,
            "pid": os.getpid(),
            "simulated": simulated,
            "device": os.environ.get("CUPTIMEM_SIM_DEVICE"),
            "memory": os.environ.get("CUPTIMEM_SIM_MEMORY"),
            "left": [name for name in os.environ if name.startswith("CUPTIMEM_PYTEST")],
            "dev_mode": sys.flags.dev_mode,
            "directory": os.getcwd(),
            "arguments": sys.argv[1:],
            "path": sys.path,
        }), file=file)

note("conftest")
"""


SESSION = "cuptimem.pytest_plugin.session"  # with what it imports: else a third of a short run of pytest


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """For runs of suites that import PyTorch."""
    builtin = (f"_pytest.{name}" for name in default_plugins if name != "pytester_assertions")  # which is rewritten
    servers = Forks(sys.executable, environment_of_runs(), ("pytest", *builtin, SESSION))
    yield servers
    servers.close()


@pytest.fixture
def pytester(
    needs_torch: None, pytester: pytest.Pytester, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """pytest's own, whose runpytest_subprocess needs no import of PyTorch."""
    runs = iter(range(1000))

    def run(*arguments: object, timeout: float = 200) -> pytest.RunResult:
        environment = {**environment_of_runs(), "HOME": str(pytester.path)}
        environment |= {name: os.environ[name] for name in ("COLUMNS",) if name in os.environ}
        began = time.monotonic()
        words = (f"--basetemp={pytester.path}/runpytest-{next(runs)}", *map(str, arguments))
        done = run_pytest(forks, pytester.path, words, environment, timeout)
        print(done.out, done.err, sep="\n")  # shown where a test fails
        spent = time.monotonic() - began
        return pytest.RunResult(done.code, done.out.splitlines(), done.err.splitlines(), spent)

    monkeypatch.setattr(pytester, "runpytest_subprocess", run)
    return pytester


@dataclass(frozen=True)
class Ended:
    """How a command line ended, and what the conftests that it imported noted."""

    pid: int
    code: int
    out: str
    err: str
    notes: list[dict[str, Any]]

    @property
    def note(self) -> dict[str, Any]:
        (only,) = self.notes
        return only


def _install(python: str, script: str) -> None:
    """What an install leaves beside modules: pytest's script, and cuptimem's metadata, by which pytest finds plugins.
    An interpreter that has only the extension built in place has none."""
    Path(script).write_text(CONSOLE_SCRIPT.format(python=python))
    Path(script).chmod(0o755)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    site = next(Path(python).parent.parent.glob("lib/python3.*/site-packages"))
    metadata = site / f"cuptimem-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: cuptimem\nVersion: {project['version']}\n")
    lines = (f"{name} = {value}\n" for name, value in project["entry-points"]["pytest11"].items())
    (metadata / "entry_points.txt").write_text("".join(["[pytest11]\n", *lines]))


class Suite:
    """A folder with a conftest that notes who imports it, and command lines run in it."""

    def __init__(self, pytester: pytest.Pytester, python: str) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.python = python
        self.script = str(Path(python).with_name("pytest"))
        self._notes = self.path / "notes"
        self.environment = {**clean_environment(), "HOME": str(self.path / "home"), "NOTES": str(self._notes)}
        self.environment["PYTEST_ADDOPTS"] = "-pno:hypothesispytest"  # a third of what a start of pytest takes
        if not Path(self.script).exists():
            _install(python, self.script)
        pytester.makeconftest(NOTE)

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # pytester.popen has an environment of its own
            words,
            cwd=self.path,
            env={**self.environment, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self, *words: str, stdin: str = "", **variables: str) -> Ended:
        self._notes.unlink(missing_ok=True)
        process = self.start(*words, **variables)
        try:
            out, err = process.communicate(stdin.encode(), timeout=200)
        finally:
            process.kill()
        return Ended(process.pid, process.returncode, out.decode(), err.decode(), self.notes())

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._notes.read_text().splitlines()] if self._notes.exists() else []


@pytest.fixture
def fake_torch(pytester: pytest.Pytester) -> Callable[[str], None]:
    """Puts a torch before the real one that says this of itself and has nothing else: only torch/version.py is read."""

    def make(version: str) -> None:
        folder = pytester.mkdir("torch")
        (folder / "__init__.py").write_text("")
        (folder / "version.py").write_text(version)

    return make


@pytest.fixture
def suite(pytester: pytest.Pytester, python: str, fake_torch: Callable[[str], None]) -> Suite:
    """One that imports no torch, in an environment whose torch says that it is a CUDA build."""
    fake_torch("__version__ = '2.14.1+cu130'\ncuda = '13.0'\nhip = None\n")
    found = Suite(pytester, python)
    found.environment["PYTHONPATH"] = str(pytester.path)
    return found


@pytest.fixture
def cuda_suite(pytester: pytest.Pytester, sim_python: str) -> Suite:
    """One that may use a CUDA build of PyTorch."""
    site = next(Path(sim_python).parent.parent.glob("lib/python3.*/site-packages"))
    tools = [entry for entry in sys.path if entry.endswith("-packages")]  # pytest and its plugins
    (site / "zz_tools.pth").write_text("\n".join(tools) + "\n")
    return Suite(pytester, sim_python)


def ended_by(process: "subprocess.Popen[bytes]", number: signal.Signals, group: bool) -> int:
    """Sends the signal to the process, or to its whole group as a terminal does. The exit code."""
    (os.killpg if group else os.kill)(process.pid, number)
    try:
        process.communicate(timeout=100)
    finally:
        process.kill()
    return process.returncode


@pytest.fixture
def memory_suite(pytester: pytest.Pytester, forks: Forks) -> MemorySuite:
    return MemorySuite(pytester, forks)
