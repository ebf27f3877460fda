"""What a process goes through in production: many threads, forks, signals, limits, full disks.

Every test runs a program in a child process, which says in one line of JSON what it saw. With CUPTIMEM_STRESS=long
(`make stress`) the numbers are those that the project promises, and what was counted is kept in docs/stress.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path[:0] = [path for path in (str(HERE),) if path not in sys.path]

from tests.conftest import clean_environment  # noqa: E402
from tests.forkserver import Forks  # noqa: E402

LONG = os.environ.get("CUPTIMEM_STRESS") == "long"


@pytest.fixture
def scale() -> Callable[[int, int], int]:
    """The short or the long number."""
    return lambda short, long: long if LONG else short


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps counts for the dated result (one JSON line a test in $CUPTIMEM_STRESS_RESULT)."""

    def keep(**counts: object) -> None:
        target = os.environ.get("CUPTIMEM_STRESS_RESULT")
        if target:
            with open(target, "a") as file:
                file.write(json.dumps({"test": request.node.name, **counts}) + "\n")

    return keep


def _written(folder: Path, program: str) -> Path:
    script = folder / "program.py"
    script.write_text(
        f"import sys\nsys.path[:0] = [{str(HERE)!r}, {str(ROOT)!r}]\nfrom stress_child import *\n{program}"
    )
    return script


def _rings(folder: Path) -> str:
    rings = folder / "rings"
    rings.mkdir(exist_ok=True)
    return str(rings)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CUPTIMEM", "PYTEST"))}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUPTIMEM_RING_DIR": _rings(folder)}


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a program after `from stress_child import *`, in an empty folder."""

    def start(program: str, *arguments: object, before: tuple[str, ...] = (), **environment: str) -> Any:
        script = _written(tmp_path, program)
        return subprocess.Popen(
            [*before, sys.executable, "-W", "ignore", str(script), *map(str, arguments)],
            env={**_environment(tmp_path), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=tmp_path,
        )

    return start


@pytest.fixture
def child(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., dict[str, Any]]:
    """Runs such a program to its end. Its last line of output is the answer; "stderr" in it what it said."""

    def child(program: str, *arguments: object, timeout: float = 120, **options: Any) -> dict[str, Any]:
        process = start(program, *arguments, **options)
        try:
            out, err = process.communicate(timeout=1800 if LONG else timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"still running after {timeout} s\n{out[-2000:]}\n{err[-3000:]}", pytrace=False)
        return _answer(process.returncode, out, err)

    return child


def _answer(code: int, out: str, err: str) -> dict[str, Any]:
    if code != 0:
        pytest.fail(f"exit {code}\n{out[-2000:]}\n{err[-3000:]}", pytrace=False)
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    answer["stderr"] = err
    return answer


@pytest.fixture
def forked(forks: Forks, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """As child, for a program that begins with PyTorch, in a fork of a process that has imported it."""

    def run(program: str, *arguments: object, timeout: float = 120) -> dict[str, Any]:
        script, most = _written(tmp_path, program), 1800 if LONG else timeout
        words = map(str, arguments)
        environment = clean_environment() | {"CUPTIMEM_RING_DIR": _rings(tmp_path)}
        done = forks.of(program).run(script, *words, environment=environment, cwd=tmp_path, timeout=most)
        return _answer(done.code, done.out, done.err)

    return run
