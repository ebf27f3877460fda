"""Programs of this folder in processes of their own, on the CPU and on a simulated device."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, clean_environment
from tests.forkserver import OPTIMIZERS, ForkServer
from tests.on_device.simulated import device

HERE = Path(__file__).resolve().parent


class Runs:
    """One process that forks for each program."""

    def __init__(self, python: str, kind: str, more: Mapping[str, str]) -> None:
        self.kind = kind
        self._environment = {**clean_environment(), "PYTHONPATH": str(ROOT), "FORKS_SEE_ALL": "1", **more}
        self._forks = ForkServer(python, self._environment, OPTIMIZERS)

    def run(self, script: str, *arguments: str, **environment: str) -> Any:
        """What it printed on its last line. AssertionError if it failed."""
        with tempfile.TemporaryDirectory(prefix="accounts-") as folder:
            command = (HERE / script, *arguments[:1], self.kind, *arguments[1:], folder)
            done = self._forks.run(*command, environment={**self._environment, **environment}, cwd=Path(folder))
        assert done.code == 0, f"{script} {arguments}: exit {done.code}\n{done.out[-500:]}\n{done.err[-2000:]}"
        return json.loads(done.out.splitlines()[-1])

    def close(self) -> None:
        self._forks.close()


def on_cpu() -> Runs:
    return Runs(sys.executable, "cpu", {})


def on_device(python: str) -> Runs:
    """Without cuBLAS's workspaces, which are nothing that a program's objects have."""
    return Runs(python, "cuda", {**device.environment(), "CUBLAS_WORKSPACE_CONFIG": ":0:0"})
