"""PyTorch's operators on the simulated device: they run, their results have the right shapes, and nothing that they
call is undescribed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudasim import report as device_report
from tests.conftest import Result

pytestmark = pytest.mark.cuda_torch

PROGRAM = Path(__file__).with_name("operators.py")
MIB = 1 << 20


def run(forked_on_device: Callable[..., Result], report: Path, choice: str, count: int, **environment: str) -> set[str]:
    """What the device modelled. count: how many operators there must be at least."""
    done = forked_on_device(str(PROGRAM), choice, report=report, env=environment)
    assert done.code == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert {name: result for name, result in found.items() if not result["same"]} == {}
    assert len(found) >= count
    reports = device_report.read(str(report))
    assert reports and all(each.notes_dropped == 0 for each in reports)
    for kind in (device_report.UNDESCRIBED, device_report.REFUSED, device_report.LIMIT):
        assert device_report.merged_notes(reports, kind) == ()
    return {note.name for note in device_report.merged_notes(reports, device_report.MODELLED)}


def test_basic(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    assert "cuDNN CTC loss workspace" in run(forked_on_device, tmp_path / "report", "basic", 18)


def test_products(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    modelled = run(forked_on_device, tmp_path / "report", "products", 14)
    assert {"cuDNN attention workspace", "cuSPARSELt workspace"} < modelled


# The newer interface of cuDNN, which PyTorch uses unless told otherwise, and the older one.
@pytest.mark.parametrize("legacy", [False, True])
def test_cudnn(legacy: bool, forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    environment = {"TORCH_CUDNN_V8_API_DISABLED": "1"} if legacy else {}
    modelled = run(forked_on_device, tmp_path / "report", "cudnn", 40, **environment)
    assert {"cuDNN convolution workspace", "cuDNN RNN workspace", "cuDNN dropout states"} < modelled
    assert "cuDNN batch normalization workspace" in modelled


def test_linear_algebra(forked_on_device: Callable[..., Result], tmp_path: Path) -> None:
    modelled = run(forked_on_device, tmp_path / "report", "linalg", 13)
    assert {"cuSOLVER workspace", "cuSPARSE workspace", "cuFFT work area", "elements of a sparse product"} < modelled


def test_the_convolution_workspace_is_in_the_peak(forked_on_device: Callable[..., Result]) -> None:
    """To the byte, whichever way it is said: nothing, a size, the allowance."""
    code = """
import torch
with torch.no_grad():
    x = torch.zeros(8, 16, 64, 64, device="cuda")
    w = torch.zeros(16, 16, 3, 3, device="cuda")
    torch.nn.functional.conv2d(x, w, padding=1)
    print(torch.cuda.max_memory_allocated())
"""

    def peak(**environment: str) -> int:
        done = forked_on_device("-c", code, env=environment)
        assert done.code == 0, done.err
        return int(done.out)

    nothing = peak(CUPTIMEM_SIM_CONV_WORKSPACE="0")
    tensor, weight = 8 * 16 * 64 * 64 * 4, 16 * 16 * 9 * 4
    assert nothing == 2 * tensor + weight
    assert peak(CUPTIMEM_SIM_CONV_WORKSPACE="64MiB") == nothing + 64 * MIB
    assert peak() == nothing + 2 * tensor + weight
