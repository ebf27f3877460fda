"""Real programs: what cuptimem recorded is what PyTorch says, what Python reaches, and what the device gave out."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from tests.on_device.simulated.programs import PROGRAMS

pytestmark = pytest.mark.cuda_torch


# Inductor alone is in compile_graphs, Triton's way to the device in test_compile.py. The two others allocate as
# gpt_fp16_scaler and resnet do.
EXTENDED = ("compile_triton", "gpt_bf16", "lstm")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.extended) if one in EXTENDED else one for one in PROGRAMS]
)
def test_program(name: str, forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    program = PROGRAMS[name]
    done = forked_on_device(
        "-m",
        "tests.on_device.simulated.run",
        name,
        str(tmp_path / "run.cmem"),
        env=program.environment,
        device=program.device,
        memory=program.memory,
        devices=program.devices,
        log=tmp_path / "log",
        report=tmp_path / "report",
    )
    assert done.code == 0, done.err[-3000:]
    found = json.loads(done.out.splitlines()[-1])
    counts = found["counts"]
    assert counts["checkpoints"] == program.checkpoints
    assert found["lost"] == 0
    assert counts["blocks"] > 0 and counts["events"] > 0 and counts["device records"] > 0
    assert counts["driver events"] > 0
    if program.storages:
        assert counts["storages"] > 0
    if program.back_end in ("native", "expandable"):
        assert counts["segments"] > 0 and counts["segment events"] > 0
    assert counts.get("ooms", 0) == program.ooms
    assert list(found["peaks"]) == [f"cuda:{index}" for index in range(program.devices)]


NOTICED = {
    "alloc": "given out",
    "free": "given out twice|live blocks|given out",
    "requested": "live blocks",
    "segment_new": "segments",
    "reserved": "reserved totals",
    "driver_new": "histories differ",
    "driver_free": "histories differ",
}


def test_a_missing_event_is_noticed(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    done = forked_on_device(
        *("-m", "tests.on_device.simulated.run", "gpt_fp32", str(tmp_path / "run.cmem"), *NOTICED),
        log=tmp_path / "log",
        report=tmp_path / "report",
    )
    assert done.code == 0, done.err[-3000:]
    said = json.loads(done.out.splitlines()[-1])
    assert said.keys() == NOTICED.keys()
    for kind, noticed in NOTICED.items():
        assert re.search(noticed, said[kind]), (kind, said[kind])
