"""Programs that use torch run in child processes of their own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import clean_environment
from tests.forkserver import Forks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


@pytest.fixture
def run(forks: Forks, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a program after `from child import *` and returns what it gave to `report`. afresh: it begins without
    PyTorch."""

    def run(program: str, timeout: float = 120, *, afresh: bool = False, **more: str) -> dict[str, Any]:
        script = tmp_path / "program.py"
        script.write_text(f"import sys\nsys.path[:0] = [{str(HERE)!r}, {str(ROOT)!r}]\nfrom child import *\n{program}")
        server = forks.of(program)
        start = server.run_afresh if afresh else server.run
        environment = {**clean_environment(), **more}
        done = start(script, environment=environment, cwd=tmp_path, timeout=timeout)
        assert done.code == 0, f"exit {done.code}\n{done.out[-3000:]}\n{done.err[-5000:]}"
        answer: dict[str, Any] = json.loads(done.out.strip().splitlines()[-1])
        return answer

    return run
