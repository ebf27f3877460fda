"""No call enters CUPTI while no driver answers: some releases do not survive one.

With a libcupti that is played and ends the process whatever is called, and with NVIDIA's own 13.2, which does so by
calling itself until the stack ends.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Result, clean_environment
from tests.record.driver import fakes
from tests.record.driver.cupti_parts import START, Child

WHEEL = ROOT / "build/cupti/nvidia/cu13/lib/libcupti.so.13"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")


@pytest.fixture(params=["played", "vendor's"])
def deadly(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A toolkit whose libcupti ends the process that calls it."""
    if request.param == "played":
        return fakes.build_deadly(tmp_path / "toolkit/lib64/libcupti.so.13").parents[1]
    if not WHEEL.exists():
        wanted = os.environ.get("CUPTIMEM_CUDA", "")
        missing = f"{WHEEL} is not there: `make test` installs it, unless CUDA=no"
        pytest.fail(missing) if wanted == "yes" else pytest.skip(missing)
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit/lib64").symlink_to(WHEEL.parent)
    return tmp_path / "toolkit"


def library(toolkit: Path) -> str:
    return str(toolkit / "lib64/libcupti.so.13")


def test_both_are_deadly(deadly: Path) -> None:
    ask = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(ctypes.c_uint32()))"
    for loads in ({}, {"MAY_LOAD": "1"}):
        done = subprocess.run([sys.executable, "-c", ask, library(deadly)], env={**clean_environment(), **loads})
        assert done.returncode in (-6, -11)


RECORD = """
for path in {load!r}:
    ctypes.CDLL(path)
with cuptimem.profile("a.cmem", kernels=True):
    time.sleep(0.1)  # where a driver is loaded it is asked some times meanwhile
    _core.cupti_flush(False)
    during = state()
    if os.fork() == 0:
        with cuptimem.profile("child.cmem"):
            _core.cupti_flush(True)
        os._exit(0)
    left = os.wait()[1]
    _core.cupti_flush(True)
    loaded = "libcupti" in Path("/proc/self/maps").read_text()
report(during=during, left=left, loaded=loaded, driver=[driver(), driver("child.cmem")])
"""


@pytest.mark.parametrize("cupti", ["in the process", "in the toolkit"])
@pytest.mark.parametrize("cuda", ["no driver", "unused", "no device"])
def test_a_recording_does_not_enter_it(child: Child, fake: Path, deadly: Path, cupti: str, cuda: str) -> None:
    load = [library(deadly)] if cupti == "in the process" else []
    environment = {"CUDA_HOME": str(deadly), **({"MAY_LOAD": "1"} if load else {})}
    begin = ""
    if cuda != "no driver":
        load.append(str(fake / "libcuda.so.1"))
    if cuda == "no device":
        environment["FAKE_INIT"] = "100"
        begin = f"assert ctypes.CDLL({str(fake / 'libcuda.so.1')!r}).cuInit(0) == 100\n"
    found = child(begin + RECORD.format(load=load), env=environment)
    assert (found["during"], found["left"], found["loaded"]) == (["waiting", ""], 0, cupti == "in the process")
    for notes in found["driver"]:
        assert notes["driver"] == "none" and "cupti" not in notes
    assert found["said"] == []


def test_it_is_entered_where_a_driver_answers(child: Child, fake: Path, deadly: Path) -> None:
    """So the test above could fail."""
    environment = {"CUDA_HOME": str(deadly), "MAY_LOAD": "1"}
    code = -6 if library(deadly) == os.path.realpath(library(deadly)) else -11
    child(START.format(folder=str(fake)), env=environment, code=code)


@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize(
    ("deadly", "cuda"),
    [
        ("vendor's", "no driver"),
        ("played", "no device"),
        ("played", "a driver"),
        pytest.param("vendor's", "a driver", marks=pytest.mark.extended),
    ],
    indirect=["deadly"],
)
def test_doctor(run: Callable[..., Result], fake: Path, deadly: Path, tmp_path: Path, cuda: str) -> None:
    """What CUPTI does to the process that asks it is no verdict on the rest."""
    environment = {"LD_PRELOAD": library(deadly), "MAY_LOAD": "1"}  # loaded as by torch's CUDA build
    if cuda != "no driver":
        (tmp_path / "driver").mkdir()
        (tmp_path / "driver/libcuda.so.1").symlink_to(fake / "libcuda.so.1")
        environment["LD_LIBRARY_PATH"] = str(tmp_path / "driver")
    if cuda == "no device":
        environment["FAKE_INIT"] = "100"
    done = run("-m", "cuptimem", "doctor", "--json", env=environment)
    assert done.code == 0, done.out + done.err
    answer: dict[str, Any] = json.loads(done.out)
    checks = {check["name"]: check for check in answer["checks"]}
    for name in ("bytes", "stack", "nodes", "backward", "autostart"):
        assert checks[name]["state"] == "ok", checks[name]
    assert answer["works"] and answer["verdict"].startswith("Recording works")
    check = checks["CUPTI"]
    if cuda == "no driver":
        assert check["state"] == "note" and f"libcupti would be {os.path.realpath(library(deadly))}" in check["text"]
    elif cuda == "no device":
        assert check["state"] == "warning" and "no device is visible" in check["text"]
    else:
        assert check["state"] == "warning" and "--no-driver" in check["fix"]
        assert check["text"].startswith("the process that asked CUPTI (by a recording) was killed by signal ")
