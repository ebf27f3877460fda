"""Suites that pytest runs in a process of its own, and what the plugin wrote of them."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Result, clean_environment
from tests.forkserver import Forks

PROGRAM = Path(__file__).with_name("as_a_module.py")
MODULE = ("-m", "pytest")
PLUGINS = ROOT / "build/pytest-plugins"  # beside .venv: one of them changes the order of every suite that it sees
BEGIN = "import cuptimem, pytest, torch, unittest\ndef block(size):\n    return torch.empty(size, dtype=torch.uint8)\n"


def needs(module: str) -> pytest.MarkDecorator:
    """Skips where a plugin that `make test` installs is missing."""
    missing = not any((PLUGINS / name).exists() for name in (module, f"{module}.py"))
    return pytest.mark.skipif(missing, reason=f"{module} is not in {PLUGINS.relative_to(ROOT)}; make set-up")


def run_pytest(
    forks: Forks, path: Path, arguments: Iterable[str], environment: Mapping[str, str], timeout: float = 200
) -> Result:
    """In a folder, as `python -m pytest` would, with PyTorch there already. It has nothing on its standard input."""
    # One is imported and rewritten for a line of the summary; one collects garbage five times at the end.
    arguments = ("-pno:hypothesispytest", "-pno:unraisableexception", *arguments)
    server = forks.of("".join(file.read_text() for file in path.glob("*.py")))
    return server.run(PROGRAM, *arguments, environment=environment, cwd=path, timeout=timeout)


def environment_of_runs() -> dict[str, str]:
    """pytest may keep what it has rewritten."""
    environment = clean_environment()
    del environment["PYTHONDONTWRITEBYTECODE"]
    return environment


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    err: str
    records: list[dict[str, Any]]

    @property
    def counts(self) -> dict[str, int]:
        """Of its last line: {"passed": 2, "over memory limit": 1}."""
        last = [line for line in self.out.splitlines() if re.search(r" in \d+\.\d\ds", line)][-1]
        words = re.findall(r"(\d+) ([a-z ]+?)(?:,| in )", last)
        return {word.removesuffix("s") if word == "warnings" else word: int(number) for number, word in words}

    def figures(self, name: str = "peak", device: str = "cpu") -> dict[str, int]:
        """Of each test: the bytes of its last record."""
        return {
            record["nodeid"].partition("::")[2]: record["devices"].get(device, {name: 0})[name]
            for record in self.records
        }

    @property
    def outcomes(self) -> dict[str, str]:
        return {record["nodeid"].partition("::")[2]: record["outcome"] for record in self.records}


class MemorySuite:
    """A folder of tests that use PyTorch."""

    def __init__(self, pytester: pytest.Pytester, forks: Forks) -> None:
        self.pytester = pytester
        self._forks = forks
        self.path = pytester.path
        self.plugins: tuple[str, ...] = ()
        self.environment = {**environment_of_runs(), "HOME": str(self.path), "COLUMNS": "100"}

    def write(self, text: str, name: str = "test_it.py") -> Path:
        path = self.path / name
        path.write_text(BEGIN + text)
        return path

    def run(self, *arguments: str, stdin: str = "", command: tuple[str, ...] = MODULE) -> Ended:
        """With figures of all tests, unless the arguments name a JSON file of their own, or turn the plugin off."""
        file = self.path / "figures.json"
        file.unlink(missing_ok=True)
        measured = "no:cuptimem" not in arguments and command[-1] == "pytest"
        environment = dict(self.environment)
        if self.plugins:
            environment["PLUGINS" if command == MODULE and not stdin else "PYTHONPATH"] = str(PLUGINS)
            arguments += tuple(f"-pno:{name}" for name in ("randomly", "benchmark") if name not in self.plugins)
        arguments = (*([f"--cuptimem-json={file}"] if measured else []), *arguments)
        if command == MODULE and not stdin:
            done = run_pytest(self._forks, self.path, arguments, environment)
        else:
            ran = subprocess.run(
                [sys.executable, *command, *arguments],
                cwd=self.path,
                env=environment,
                input=stdin,
                capture_output=True,
                text=True,
                timeout=200,
            )
            done = Result(ran.returncode, ran.stdout, ran.stderr)
        records = json.loads(file.read_text())["records"] if file.exists() else []
        return Ended(done.code, done.out, done.err, records)
