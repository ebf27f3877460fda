"""PyTorch's ways to the driver on the simulated device: Inductor and Triton, NVRTC, expandable segments, NVML; and what
is refused there: memory for other processes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudasim import report as device_report
from tests.conftest import Result
from tests.on_device.simulated import device_log

pytestmark = pytest.mark.cuda_torch

MIB = 1 << 20
END = "from tests.on_device.simulated.ending import leave\nleave()\n"


@pytest.fixture
def ran(forked_on_device: Callable[..., Result], tmp_path: Path) -> Callable[..., Any]:
    """Runs a program that prints one JSON object as its last line; returns it and the notes of the device by name."""

    def call(text: str, *arguments: str, **keywords: Any) -> tuple[Any, dict[str, int]]:
        program, report = tmp_path / "program.py", tmp_path / "report"
        # Triton reads its kernels' source from the file.
        program.write_text(f"import json, sys\nimport torch\n{text}\n{END}")
        done = forked_on_device(str(program), *arguments, report=report, memory="24GiB", **keywords)
        assert done.code == 0, done.err[-3000:]
        told = device_report.parse(report.read_bytes(), str(report))
        named = (device_report.UNDESCRIBED, device_report.REFUSED)
        return json.loads(done.out.splitlines()[-1]), {
            note.name: note.count for note in told.notes if note.kind in named
        }

    return call


TRAINING = """
from torch._inductor import metrics
torch.manual_seed(0)
layers = [torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)]
model = torch.nn.Sequential(*layers).cuda()
step = torch.compile(model) if sys.argv[1] == "compiled" else model
after, grown = [], []
for _ in range(3):
    torch.cuda.reset_peak_memory_stats()
    x = torch.randn(256, 512, device="cuda")
    loss = step(x).square().mean()
    loss.backward()
    after.append(torch.cuda.memory_allocated())
    grown.append(torch.cuda.max_memory_allocated())
    model.zero_grad()
    loss.item()
grads = sum(p.numel() * 4 for p in model.parameters())
print(json.dumps({"after": after, "peak": grown, "kernels": metrics.generated_kernel_count, "parameters": grads}))
"""


def test_compiled_training_holds_what_eager_training_holds(ran: Callable[..., Any], compiled: dict[str, str]) -> None:
    ours, notes = ran(TRAINING, "compiled")
    eager, _ = ran(TRAINING, "eager")
    assert notes == {}
    assert ours["kernels"] > 0 and eager["kernels"] == 0
    cubins = list(Path(compiled["TRITON_CACHE_DIR"]).rglob("*.cubin"))
    assert len(cubins) >= ours["kernels"]  # ptxas made code of them
    # Parameters, their gradients, the batch, and the workspaces of two cuBLAS handles: the same either way.
    assert ours["after"] == eager["after"]
    assert ours["after"][1] == ours["after"][2] > 2 * ours["parameters"]
    # The compiled one keeps less for its backward pass, not more.
    assert ours["after"][2] < ours["peak"][2] <= eager["peak"][2]


def test_triton_kernel(ran: Callable[..., Any]) -> None:
    found, notes = ran(
        """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

x = torch.ones(1000, device="cuda")
kernel = add[(8,)](x, x, torch.empty_like(x), 1000, BLOCK=128)
try:
    add[(8,)](x.cpu(), x, torch.empty_like(x), 1000, BLOCK=128)
except ValueError as error:
    refused = str(error)
from triton.runtime import driver
print(json.dumps({
    "name": kernel.metadata.name, "registers": kernel.n_regs, "refused": refused,
    "device": driver.active.utils.get_device_properties(0), "target": driver.active.get_current_target().arch,
}))
"""
    )
    assert notes == {}
    assert found["name"] == "add" and 16 <= found["registers"] <= 255
    assert "cpu tensor" in found["refused"]
    assert found["target"] == 90
    assert found["device"]["multiprocessor_count"] == 132
    assert found["device"]["max_shared_mem"] == 232448


def test_kernel_compiled_by_nvrtc(ran: Callable[..., Any], tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    found, notes = ran(
        """
add = torch.cuda.jiterator._create_jit_fn("template <typename T> T add(T a, T b) { return a + b; }")
x = torch.ones(1 << 20, device="cuda")
before = torch.cuda.memory_allocated()
y = add(x, x)
print(json.dumps({"shape": list(y.shape), "made": torch.cuda.memory_allocated() - before}))
""",
        env={"PYTORCH_KERNEL_CACHE_PATH": str(kernels)},
    )
    assert any(kernels.iterdir())  # not one that was compiled before
    assert notes == {}
    assert found == {"shape": [1 << 20], "made": 4 * MIB}


SEGMENTS = """
def used():
    free, total = torch.cuda.mem_get_info()
    return total - free
torch.zeros(1, device="cuda")
own = used() - torch.cuda.memory_reserved()
seen = []
def look():
    seen.append([used() - own, torch.cuda.memory_reserved()])
blocks = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(10)]
look()
del blocks[::2]
torch.cuda.empty_cache()
look()
blocks.append(torch.empty(200 << 20, dtype=torch.uint8, device="cuda"))
look()
x = torch.arange(64).pin_memory().to("cuda")
blocks.clear()
torch.cuda.empty_cache()
look()
expandable = torch.cuda.memory_snapshot()[0]["is_expandable"]
print(json.dumps({"seen": seen, "back": x.cpu().tolist(), "expandable": expandable}))
"""


def test_expandable_segments_take_what_pytorch_reserves(ran: Callable[..., Any], tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    found, notes = ran(SEGMENTS, env=settings, log=log)
    assert notes == {}
    assert found["expandable"] is True
    assert all(used == reserved for used, reserved in found["seen"])
    assert found["seen"][0][0] >= 300 * MIB > found["seen"][1][0] >= 150 * MIB > found["seen"][3][0]
    assert found["back"] == list(range(64))
    # The driver's own account: all of it was physical memory, created, mapped, unmapped and destroyed.
    records = device_log.records(log)
    assert {record.op for record in records if record.change > 0} == {"context", "create"}
    created = [record for record in records if record.op == "create"]
    destroyed = [record for record in records if record.op == "destroy"]
    mapped = [record for record in records if record.op == "map"]
    assert sum(r.bytes for r in mapped) == sum(r.bytes for r in created) > 500 * MIB
    at_end = sum(r.bytes for r in created) - sum(r.bytes for r in destroyed)
    assert at_end <= found["seen"][3][1]  # and less once PyTorch is gone


@pytest.mark.parametrize(
    ("program", "note"),
    [
        ("torch.ones(8, device='cuda').untyped_storage()._share_cuda_()", "CUDA IPC"),
    ],
    ids=["ipc"],
)
def test_refused_by_name(ran: Callable[..., Any], program: str, note: str) -> None:
    found, notes = ran(
        f"""
try:
    {program}
    error = None
except RuntimeError as refused:
    error = str(refused)
torch.ones(8, device="cuda") + 1
print(json.dumps(error))
""",
        devices=2,
        timeout=120,
    )
    assert found and "not supported" in found
    assert notes.pop(note) >= 1
    assert notes == {}


def test_processes_and_devices_as_pynvml_sees_them(ran: Callable[..., Any]) -> None:
    found, notes = ran(
        """
import os
try:
    import pynvml
except ImportError:
    torch.cuda.init()  # without a device there is no report
    print("null")
    sys.exit()
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(1)
before = pynvml.nvmlDeviceGetMemoryInfo(device).used
x = torch.empty(1 << 28, device="cuda:0")
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
later = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
def failure(call):
    try:
        return call()
    except pynvml.NVMLError as error:
        return type(error).__name__
free, total = torch.cuda.mem_get_info()
processes = [[p.pid == os.getpid(), p.usedGpuMemory] for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
print(json.dumps({
    "count": pynvml.nvmlDeviceGetCount(), "seen": torch.cuda.device_count(),
    "uuid": [pynvml.nvmlDeviceGetUUID(device), "GPU-" + str(torch.cuda.get_device_properties(0).uuid)],
    "used": [before, memory.used, later.used, total - free], "processes": processes,
    "temperature": failure(lambda: pynvml.nvmlDeviceGetTemperature(device, 0)),
    "unknown": failure(lambda: pynvml.nvmlDeviceGetVgpuMetadata(device)),
    "by torch": torch.cuda.utilization(),
}))
""",
        devices=2,
        env={"CUDA_VISIBLE_DEVICES": "1"},
    )
    if found is None:
        pytest.skip("nvidia-ml-py is not installed there")
    assert found["count"] == 2 and found["seen"] == 1
    assert found["uuid"][0] == found["uuid"][1]
    before, *after = found["used"]
    assert before == 0 and len(set(after)) == 1 and after[0] > 1024 * MIB
    assert found["processes"] == [[True, after[0]]]
    assert found["temperature"] == "NVMLError_NotSupported"
    assert found["unknown"] == "NVMLError_NotSupported"
    assert found["by torch"] == 0
    assert list(notes) == ["nvmlDeviceGetVgpuMetadata"]
