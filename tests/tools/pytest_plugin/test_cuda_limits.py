"""Limits on a simulated CUDA device, against what PyTorch and CUDA say themselves."""

import json

import pytest

from tests.tools.pytest_plugin.conftest import Suite
from tests.tools.pytest_plugin.measured import read

pytestmark = pytest.mark.cuda_torch

TESTS = """
import json
import pytest
import torch

memory, leak = pytest.mark.limit_tensor_memory, pytest.mark.limit_tensor_leaks
KEPT, FACTS = [], {}
MIB = 1 << 20

def blocks(*sizes):
    return [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes]

@pytest.fixture(scope="module", autouse=True)
def older():
    held = blocks(64 * MIB)
    yield held
    with open("facts.json", "w") as file:
        json.dump(FACTS, file)

@pytest.fixture
def facts(request):
    return FACTS.setdefault(request.node.name, {})

def test_peak(facts, older):
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    blocks(3 * MIB, 5 * MIB, 700)
    facts["peak"] = torch.cuda.max_memory_allocated() - start

def test_older(older):
    older.clear()
    blocks(2 * MIB)

def test_matmul():
    a = torch.ones(64, 64, device="cuda")
    a @ a

def test_matmul_again():
    a = torch.ones(64, 64, device="cuda")
    a @ a

@leak("0 B")
def test_workspace_is_no_leak():
    a = torch.ones(64, 64, device="cuda")
    a @ a

@leak("1 MiB", device="cuda")
def test_leak():
    KEPT.extend(blocks(MIB, 512))

@memory("4 MiB", device="cuda")
def test_equal():
    blocks(4 * MIB)

@memory(4 * MIB - 1, device="cuda:0")
def test_one_byte_less():
    blocks(4 * MIB)

@memory("1 B", device="cpu")
def test_other_device():
    blocks(4 * MIB)

@memory("4 MiB")
def test_each_device_by_itself():
    on_cuda, on_cpu = blocks(4 * MIB), torch.empty(4 * MIB, dtype=torch.uint8)

@memory("1 B", of="reserved")
def test_reserved(facts):
    torch.cuda.reset_peak_memory_stats()
    blocks(30 * MIB)
    facts["reserved"] = torch.cuda.max_memory_reserved()

@memory("1 B", of="device")
def test_device(facts):
    held = blocks(30 * MIB)
    free, total = torch.cuda.mem_get_info()
    facts["device"] = total - free

@memory("1 GiB", device="cuda:7")
def test_no_such_device():
    assert 0
"""


def test_limits(cuda_suite: Suite) -> None:
    cuda_suite.pytester.makepyfile(test_it=TESTS)
    run = cuda_suite.run(
        cuda_suite.python, "-m", "pytest", "-v", "-rs", "--cuptimem-simulate=8GiB", "--cuptimem-json=figures.json"
    )
    figures = read(cuda_suite.path / "figures.json")
    facts = json.loads((cuda_suite.path / "facts.json").read_text())
    cuda = {test: devices.get("cuda:0", {"peak": 0, "leaked": None}) for test, devices in figures.items()}
    assert cuda["test_peak"]["peak"] == facts["test_peak"]["peak"] == (8 << 20) + 1024, run.out
    assert cuda["test_older"]["peak"] == 2 << 20
    assert cuda["test_matmul"]["peak"] == cuda["test_matmul_again"]["peak"]
    assert cuda["test_workspace_is_no_leak"]["leaked"] == 0
    assert cuda["test_leak"]["leaked"] == (1 << 20) + 512
    assert cuda["test_reserved"]["reserved"] == facts["test_reserved"]["reserved"]
    failed = {
        line.split("::")[1].split(" ")[0] for line in run.out.splitlines() if " MEMORY " in line or " LEAK " in line
    }
    assert failed == {"test_leak", "test_one_byte_less", "test_reserved", "test_device"}, run.out
    assert "cuda:7, and there is 1 CUDA device" in run.out
    (said,) = [line for line in run.out.splitlines() if "used on the device at most" in line]
    assert said.startswith(f"{facts['test_device']['device'] / (1 << 20):.1f} MiB used"), (said, facts)


RESERVED = """
import pytest
import torch

def test_small():
    torch.ones(10, device="cuda")

@pytest.mark.limit_tensor_memory("20 MiB", of="reserved")
def test_five_mib():
    torch.cuda.reset_peak_memory_stats()
    torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.max_memory_reserved() == 20 << 20

@pytest.mark.limit_tensor_memory("1 MiB", of="device")
def test_device():
    torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize("chosen", [pytest.param("five", marks=pytest.mark.extended), "small or five or device"])
def test_reserved_memory_is_the_tests_own(cuda_suite: Suite, chosen: str) -> None:
    cuda_suite.pytester.makepyfile(test_it=RESERVED)
    run = cuda_suite.run(
        cuda_suite.python, "-m", "pytest", "-k", chosen, "--cuptimem-simulate=8GiB", "--cuptimem-json=figures.json"
    )
    figures = read(cuda_suite.path / "figures.json")
    assert figures["test_five_mib"]["cuda:0"]["reserved"] == 20 << 20, run.out
    if "device" in chosen:
        parts = run.out.partition("the device at its fullest:\n")[2].splitlines()
        assert parts[0].split() == ["512.0", "MiB", "CUDA", "context"] and " 0 B " not in run.out
