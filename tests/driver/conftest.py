"""Programs without PyTorch on a simulated device: a library that allocates (tests/simulated/foreign.c) and Python."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cuptimem import _core, simulator
from tests.conftest import ROOT, Result, clean_environment
from tests.simulated import device, device_log, driver_events, foreign
from tests.simulated.driver_match import Match, match


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return foreign.build(tmp_path_factory.mktemp("foreign"))


@dataclass
class Ran:
    """A program that ran, its recording, and the device's log and report of it."""

    result: Result
    trace: Path
    log: Path
    report: Path
    printed: dict[str, Any] = field(default_factory=dict)

    @property
    def driver(self) -> driver_events.Driver:
        return driver_events.read(_core.trace_dump(str(self.trace)))

    def match(self, *, since: int = 0) -> Match:
        return match(self.driver.events, device_log.records(self.log), since=since)

    def meta(self) -> dict[str, str]:
        return dict(_core.trace_meta(str(self.trace)))

    def analyze(self) -> dict[str, Any]:
        return dict(_core.analyze(str(self.trace)))


@pytest.fixture
def program(python: str, library: Path, tmp_path: Path) -> Callable[..., Ran]:
    """Runs a program of programs.py under cuptimem. hostile: the device's CUPTIMEM_SIM_HOSTILE. Skips where there is no
    simulated device."""

    if any(not path.is_file() for path in simulator.preload()):
        pytest.skip("no simulated device was built")

    def call(
        name: str,
        *,
        cupti: str = "",
        hostile: str = "",
        code: int = 0,
        devices: int = 1,
        env: Mapping[str, str] | None = None,
        under: tuple[str, ...] = (),
        timeout: float = 120,
    ) -> Ran:
        folder = tmp_path / f"{name}-{len(os.listdir(tmp_path))}"
        folder.mkdir()
        ran = Ran(Result(0, "", ""), folder / "run.cmem", folder / "log", folder / "report")
        more = {"CUPTIMEM_SIM_CUPTI": cupti, "CUPTIMEM_SIM_HOSTILE": hostile, "PYTHONPATH": str(ROOT), **(env or {})}
        environment = device.environment(memory="8GiB", devices=devices, log=ran.log, report=ran.report, more=more)
        script = str(Path(__file__).with_name("programs.py"))
        arguments = [part.format(trace=ran.trace) for part in under]
        done = subprocess.run(
            [python, *arguments, script, name, str(ran.trace), str(library)],
            capture_output=True,
            text=True,
            env={**clean_environment(), **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
        )
        ran.result = Result(done.returncode, done.stdout, done.stderr)
        assert done.returncode == code, done.stderr[-3000:]
        if code in (0, -signal.SIGKILL):
            ran.printed = json.loads(done.stdout.splitlines()[-1])
        return ran

    return call
