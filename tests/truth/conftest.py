"""Everything here runs real programs in child processes, under the oracle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [path for path in (str(HERE), str(HERE.parent / "programs")) if path not in sys.path]

import oracle  # noqa: E402


@pytest.fixture(scope="session")
def oracle_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return oracle.build(tmp_path_factory.mktemp("oracle"))


@pytest.fixture
def child(oracle_library: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs a script of this folder under the oracle and returns the JSON on its last line of output."""
    pytest.importorskip("torch")

    def run(script: str, *arguments: object, timeout: float = 300, **environment: str) -> Any:
        command = [sys.executable, "-W", "ignore", str(HERE / script), *map(str, arguments)]
        done = subprocess.run(
            command,
            env=oracle.environment(oracle_library, PYTHONPATH=str(HERE.parents[1]), **environment),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if done.returncode != 0:
            said = f"{done.stdout[-500:]}\n{done.stderr[-1500:]}"
            pytest.fail(f"{script} {arguments}: exit {done.returncode}\n{said}", pytrace=False)
        return json.loads(done.stdout.splitlines()[-1])

    return run
