"""Programs without PyTorch on a simulated device: a library that allocates (tests/on_device/simulated/foreign.c) and
Python. And programs of the CUPTI thread, on that device or on a driver and CUPTIs that are played (fakes.c)."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cuptimem import _core
from tests.conftest import ROOT, Result, clean_environment
from tests.on_device.simulated import device, device_log, driver_events, foreign
from tests.on_device.simulated.driver_match import Match, match
from tests.record.driver import fakes
from tests.record.driver.cupti_parts import Child

HERE = Path(__file__).parent
CHILD_BEGINS = f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(HERE)!r}]\nfrom cupti_child import *\n"


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
    """Runs a program of programs.py under cuptimem. hostile: the device's CUPTIMEM_SIM_HOSTILE."""

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
        script = str(HERE / "programs.py")
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


@pytest.fixture
def child(run: Callable[..., Result], tmp_path: Path) -> Child:
    """Runs a program that begins with cupti_child.py; what it reported, and what was said on standard error."""

    def call(text: str, *, env: Mapping[str, str] | None = None, code: int = 0) -> dict[str, Any]:
        rings = {"CUPTIMEM_RING_DIR": str(tmp_path)}  # of those that are killed
        # CUPTI has threads of its own, which CPython 3.15 counts where a program forks.
        forks = "ignore:This process:DeprecationWarning"
        done = run("-W", "error", "-W", forks, "-c", CHILD_BEGINS + text, env={**rings, **(env or {})})
        assert done.code == code, done.err[-3000:]
        found: dict[str, Any] = json.loads(done.out.splitlines()[-1]) if done.out else {}
        return {**found, "said": done.err.splitlines()}

    return call


@pytest.fixture(scope="session")
def simulated() -> dict[str, str]:
    return device.environment(memory="8GiB")


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver, and toolkits with several kinds of CUPTI."""
    folder = tmp_path_factory.mktemp("fake")
    fakes.build(folder / "libcuda.so.1", "FAKE_DRIVER")
    fakes.build(folder / "plain/lib64/libcupti.so.13", "FAKE_CUPTI")
    fakes.build(folder / "names/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_NAMES")
    fakes.build(folder / "multiple/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_NAMES", "FAKE_MULTIPLE")
    fakes.build(folder / "early/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_NAMES", "FAKE_MULTIPLE", "FAKE_EARLY")
    fakes.build(folder / "records/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_RECORDS")
    fakes.build(folder / "shared/lib64/libcupti.so.13", "FAKE_CUPTI", "FAKE_RECORDS", "FAKE_NAMES")
    fakes.build(folder / "libtorch_cpu.so", "FAKE_TORCH")
    fakes.build(folder / "libcudart.so.13", "FAKE_RUNTIME")
    fakes.build(folder / "libcaller.so", "FAKE_CALLER")
    fakes.build(folder / "libpatience.so", "FAKE_PATIENCE")
    return folder
