"""What real GPUs were published to answer, asked of the simulated ones: tests/golden/*.json, each with its source."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Result
from tests.on_device.simulated import device_log

pytestmark = pytest.mark.cuda_torch

CASES = {path.stem: path for path in sorted((ROOT / "tests" / "golden").glob("*.json")) if path.stem != "renames"}
MESSAGES = CASES.pop("out_of_memory_figures")
ON = [(name, device) for name, path in CASES.items() for device in json.loads(path.read_text())["devices"]]


@pytest.mark.parametrize(("name", "device"), ON)
def test_case(name: str, device: str, forked_on_device: Callable[..., Result]) -> None:
    case: dict[str, Any] = json.loads(CASES[name].read_text())
    assert case["source"].startswith("https://") and case["ran_on"] and case["says"]
    done = forked_on_device(
        "-m",
        "tests.on_device.simulated.golden",
        str(CASES[name]),
        env=case.get("environment"),
        device=device,
        memory=case.get("memory", ""),
    )
    assert done.code == 0, done.err[-3000:]
    assert json.loads(done.out.splitlines()[-1]) == case["expected"]


SIZE = r"([\d.]+ (?:bytes|KiB|MiB|GiB))"
MESSAGE = re.compile(
    rf"CUDA out of memory\. Tried to allocate (?P<tried>{SIZE})\. "
    rf"GPU 0 has a total capacity of (?P<total>{SIZE}) of which (?P<free>{SIZE}) is free\. "
    rf"Including non-PyTorch memory, this process has (?P<in_use>{SIZE}) memory in use\. "
    rf"Of the allocated memory (?P<allocated>{SIZE}) is allocated by PyTorch, "
    rf"and (?P<kept>{SIZE}) is reserved by PyTorch but unallocated\."
)
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS[unit]


def outside(figures: dict[str, str]) -> float:
    """Bytes of the process that PyTorch's allocator did not take: context, libraries, loaded kernels."""
    return size(figures["in_use"]) - size(figures["allocated"]) - size(figures["kept"])


def test_out_of_memory_message(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    """The message speaks as on a real GPU, and its figures add up as the device's own account does."""
    program = (
        "import torch\n"
        "x = torch.empty(700 << 20, dtype=torch.uint8, device='cuda')\n"
        "y = [torch.empty(2 << 20, dtype=torch.uint8, device='cuda') for _ in range(100)]\n"
        "del y[::2]\n"
        "try:\n"
        "    torch.empty(9 << 30, dtype=torch.uint8, device='cuda')\n"
        "except torch.OutOfMemoryError as error:\n"
        "    print(error)\n"
    )
    done = forked_on_device("-c", program, memory="8GiB", report=tmp_path / "report")
    assert done.code == 0, done.err[-3000:]
    found = MESSAGE.match(done.out)
    assert found, done.out
    (state,) = device_log.report(tmp_path / "report")
    assert size(found["total"]) == 8 << 30 and size(found["tried"]) == 9 << 30
    rounding = 0.01 * (1 << 30)
    assert abs(size(found["in_use"]) - state.used) < rounding
    assert abs(size(found["free"]) - ((8 << 30) - state.used)) < rounding
    assert size(found["allocated"]) == (700 << 20) + 50 * (2 << 20)
    assert abs(outside(found.groupdict()) - state.context - state.library) < rounding


@pytest.mark.parametrize("device", ["h100", "t4"])
def test_context_is_of_a_published_size(device: str, forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    """The context's size is a stated constant, not measured here; it must lie among what processes have been seen to
    take beyond PyTorch's allocator (with some libraries loaded)."""
    seen = [outside(figures) for figures in json.loads(MESSAGES.read_text())["messages"]]
    done = forked_on_device(
        "-c", "import torch; torch.empty(1, device='cuda')", device=device, report=tmp_path / "report"
    )
    assert done.code == 0, done.err[-3000:]
    (state,) = device_log.report(tmp_path / "report")
    assert min(seen) <= state.context <= 1.2 * max(seen)
