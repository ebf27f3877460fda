"""Programs in standby, and what asks them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import clean_environment

PATIENCE = 120.0  # seconds, on a machine that does much else


def wait_for(found: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def connected(path: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.connect(path)  # waits while others wait
    end.settimeout(PATIENCE)
    return end


class Program:
    """A Python that runs beside the test."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process, self.folder = process, folder
        self.pid = process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """Closes its input, which ends it; what it still says."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        return out

    def connect(self) -> socket.socket:
        from cuptimem.cli import asking

        path = asking.listening(self.pid)
        assert path is not None
        return connected(path)


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """$XDG_RUNTIME_DIR, with a path that is short enough for a socket."""
    import shutil
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="cm-", dir="/tmp"))
    folder.chmod(0o700)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start(python: str, tmp_path: Path, runtime: Path) -> Iterator[Callable[..., Program]]:
    """Starts a program, in standby unless told otherwise; it ends with the test."""
    begun: list[Program] = []

    def call(code: str, *options: str, env: Mapping[str, str] | None = None) -> Program:
        script = tmp_path / "program.py"
        script.write_text(code)
        environment = clean_environment() | {"CUPTIMEM": "standby", "XDG_RUNTIME_DIR": str(runtime)} | (env or {})
        process = subprocess.Popen(
            [python, *options, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
        begun.append(Program(process, tmp_path))
        return begun[-1]

    yield call
    for program in begun:
        if program.process.poll() is None:
            os.kill(program.pid, signal.SIGKILL)
        program.process.communicate()
