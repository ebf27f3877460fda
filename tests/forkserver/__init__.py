"""Programs that use PyTorch, without the two seconds that importing it takes each of them.

A Python imports PyTorch while it starts (sitecustomize.py) and forks there for each program. The child goes on to start
as any Python does and runs the program as its main script: frames, `__main__`, arguments and exit code are those of a
process of its own. Handlers of atexit run as there; PyTorch's objects and its libraries' destructors are left alone
behind them, unless FORKS_END_WHOLE is set (gcov writes its counts there). Whatever is about that import or that end, or
about variables that are read meanwhile, is run afresh.

Objects that were imported before are hidden from the child's collector, and so from recordings, which would spend two
thirds of their time on PyTorch's 200,000; of `__main__` and sys.modules nothing is. A program that has FORKS_SEE_ALL in
its environment sees all of them.
"""

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import Result

HERE = Path(__file__).resolve().parent
# The first optimizer of a program imports this, as torch.compile does, which takes a second. Where it is there already,
# a fork has more pages: for programs with either.
OPTIMIZERS = ("torch._dynamo",)
# What a report is read into and shown by: a fifth of a program that prints one goes into importing these. They have
# data and words alone; what records is imported where a program would.
REPORTS = ("cuptimem.report.load", "cuptimem.output.text")
# What a Python, the loader or PyTorch may look at before the program begins.
TORCHS = ("PYTORCH_", "TORCH_")
EARLY = ("LD_", "PYTHON", "OMP_", "MKL_", *TORCHS)
# But these, which are read where they are first of use.
LATE = ("PYTORCH_KERNEL_CACHE_PATH", "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCH_CUDNN_V8_API_DISABLED")


# What `cuptimem run` asks for by its options.
OPTIONS = {
    "-q": "CUPTIMEM_QUIET",
    "-f": "CUPTIMEM_OVERWRITE",
    "--follow": "CUPTIMEM_FOLLOW",
    "--operators": "CUPTIMEM_OPERATORS",
    "--no-holders": "CUPTIMEM_NO_HOLDERS",
    "--no-walks": "CUPTIMEM_NO_WALKS",
}


class Failed(Exception):
    """There is no such process; the text says why."""


class ForkServer:
    """Starts with the first program, ends with `close`. One program at a time.

    environment: what the programs begin with; one that needs other variables of PyTorch's is a fork of a server of its
    own, one that needs others of EARLY is run afresh.
    imports: modules that are imported before the first fork, too. name: of the script, as programs find it. torch:
    whether PyTorch is among them.
    """

    def __init__(
        self,
        python: str,
        environment: Mapping[str, str],
        imports: Iterable[str] = (),
        name: str = "program.py",
        *,
        torch: bool = True,
    ) -> None:
        self._imports, self._name, self._torch = tuple(imports), name, torch
        self._command = [python, "-W", "ignore"]
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._others: dict[frozenset[tuple[str, str]], ForkServer] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self._script = Path(self._folder.name, name)

    def run(
        self, script: Path, *arguments: str, environment: Mapping[str, str], cwd: Path, timeout: float = 300
    ) -> Result:
        """As a process of its own would; raises subprocess.TimeoutExpired as well."""
        server = self.under(environment)
        if server is None:
            return self.run_afresh(script, *arguments, environment=environment, cwd=cwd, timeout=timeout)
        if server is not self:
            return server.run(script, *arguments, environment=environment, cwd=cwd, timeout=timeout)
        if self._process is None:
            self._start()
        self._script.unlink(missing_ok=True)
        self._script.symlink_to(script)
        out, err = (Path(self._folder.name, name) for name in ("out", "err"))
        request = {"arguments": arguments, "environment": dict(environment), "cwd": str(cwd)}
        request |= {"out": str(out), "err": str(err)}
        pid = self._ask(request)["pid"]
        answer = self._answer(timeout)
        if answer is None:
            os.kill(pid, signal.SIGKILL)
            self._answer(None)
            raise subprocess.TimeoutExpired([str(script), *arguments], timeout, out.read_bytes(), err.read_bytes())
        code = os.waitstatus_to_exitcode(answer["status"])
        return Result(code, out.read_text(errors="replace"), err.read_text(errors="replace"))

    def under(self, environment: Mapping[str, str]) -> "ForkServer | None":
        """The server whose forks are programs with these variables. None: they run afresh."""
        different = frozenset(_early(environment).items() ^ _early(self._environment).items())
        if not different:
            return self
        if not all(name.startswith(TORCHS) for name, _ in different):
            return None
        if different not in self._others:
            kept = {name: value for name, value in self._environment.items() if not name.startswith(EARLY)}
            start = kept | _early(environment)
            self._others[different] = ForkServer(self._command[0], start, self._imports, self._name, torch=self._torch)
        return self._others[different]

    def run_afresh(
        self, script: Path, *arguments: str, environment: Mapping[str, str], cwd: Path, timeout: float = 300
    ) -> Result:
        """In a process of its own."""
        done = subprocess.run(
            [*self._command, str(script), *arguments],
            env=environment,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    @property
    def pid(self) -> int:
        """Of the process whose children the programs are."""
        if self._process is None:
            self._start()
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        if self._process is not None:
            assert self._process.stdin is not None and self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
        self._folder.cleanup()

    def _start(self) -> None:
        path = os.pathsep.join(filter(None, (str(HERE), self._environment.get("PYTHONPATH"))))
        imports = (*["torch"] * self._torch, *REPORTS, *self._imports)
        self._process = subprocess.Popen(
            [*self._command, str(self._script)],
            env={**self._environment, "PYTHONPATH": path, "FORKSERVER_IMPORTS": " ".join(imports)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # select sees no line that a buffer has read ahead: that of a program which has ended already
        )
        if not self._answer(None):
            raise Failed(f"{self._command[0]} did not import {' '.join(imports)}")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer(None)
        assert answer is not None
        return answer

    def _answer(self, timeout: float | None) -> dict[str, Any] | None:
        """A line of its standard output; None if none comes in time."""
        assert self._process is not None and self._process.stdout is not None
        if timeout is not None and not select.select([self._process.stdout], [], [], timeout)[0]:
            return None
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"the process that forks ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


class Forks:
    """Two servers: programs that make an optimizer, or compile, begin with what that imports."""

    def __init__(
        self, python: str, environment: Mapping[str, str], imports: Iterable[str] = (), name: str = "program.py"
    ) -> None:
        self._servers = [ForkServer(python, environment, (*imports, *more), name) for more in ((), OPTIMIZERS)]

    def of(self, text: str) -> ForkServer:
        """The one for a program of this text."""
        return self._servers["torch.optim" in text or "torch.compile" in text]

    def close(self) -> None:
        for server in self._servers:
            server.close()


def recorded(output: str, *options: str) -> dict[str, str]:
    """The variables by which `cuptimem run -o OUTPUT OPTIONS` has its program recorded, which a fork obeys, too."""
    asked = {"CUPTIMEM": "1", "CUPTIMEM_RUN": "1", "CUPTIMEM_OUTPUT": output}
    return asked | {OPTIONS[option]: "1" for option in options}


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EARLY) and name not in LATE}
