"""Suites that are run in a process of their own, and the figures that the plugin wrote of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

MIB = 1 << 20


@dataclass(frozen=True)
class Run:
    """How a run ended, what it printed, and the figures of its tests by name and device."""

    code: int
    out: str
    err: str
    outcomes: Mapping[str, int]
    figures: Mapping[str, Mapping[str, Any]]

    def peak(self, test: str, device: str = "cpu") -> int:
        return int(self.figures[test].get(device, {"peak": 0})["peak"])


@pytest.fixture
def run_suite(pytester: pytest.Pytester) -> Callable[..., Run]:
    """Writes files, runs pytest on them with --cuptimem-json, and reads what it wrote."""

    def run(*arguments: str, **files: str) -> Run:
        pytester.makepyfile(**files)
        target = pytester.path / "figures.json"
        target.unlink(missing_ok=True)
        done = pytester.runpytest_subprocess("-p", "no:cacheprovider", f"--cuptimem-json={target}", *arguments)
        return Run(int(done.ret), done.stdout.str(), done.stderr.str(), _outcomes(done), read(target))

    return run


def _outcomes(done: pytest.RunResult) -> Mapping[str, int]:
    try:
        return done.parseoutcomes()
    except ValueError:  # no test was run
        return {}


def read(target: Any) -> dict[str, dict[str, Any]]:
    if not target.exists():
        return {}
    rows = json.loads(target.read_text())["records"]
    return {row["nodeid"].rpartition("::")[2]: row["devices"] for row in rows}
