"""Programs that use torch run in child processes of their own."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a program after `from child import *` and returns what it gave to `report`."""

    if importlib.util.find_spec("torch") is None:
        pytest.skip("these programs use torch")

    def run(program: str, timeout: float = 120, **environment: str) -> dict[str, Any]:
        script = tmp_path / "program.py"
        script.write_text(f"import sys\nsys.path[:0] = [{str(HERE)!r}, {str(ROOT)!r}]\nfrom child import *\n{program}")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script)],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    return run
