"""Whatever PyTorch's own libraries want of CUDA is described: a new version that wants more fails here, with names."""

import re
import runpy
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import cudasim
from tests.conftest import ROOT, Result
from tests.on_device.simulated import device, elf

pytestmark = pytest.mark.cuda_torch

# By the library that an import names; by its name where it names none (the driver, cuSPARSELt, NVML).
SIMULATED = {alias.soname.partition(".so.")[0] for alias in cudasim.ALIASES}
FAMILIES = re.compile(r"(__cuda|cuda|cublas|cudnn|cusolver|cusparse|cufft|cupti|nvml|nccl|cu)[A-Z_]\w*")
LATER = ("libnvrtc.", "libnvrtc-builtins.", "libnvshmem_host.")  # that a PyTorch for CUDA 12 loads when it needs them
# What PyTorch 2.7.1, 2.9.1 or 2.11.0 imports and 2.14.1 does not.
OLDER = ["cudaGraphAddEmptyNode", "cudaGraphDebugDotPrint", "cusolverDnXsyevjSetSortEig"]
OLDER += ["cusolverDnCreateSyevjInfo", "cusolverDnDestroySyevjInfo"]
OLDER += [f"cusolverDn{kind}evj{end}" for kind in ("Ssy", "Dsy", "Che", "Zhe") for end in ("", "_bufferSize")]
REAL = re.compile(r"cu(File|rand)\w*")


def wanted(folder: Path) -> dict[str, str]:
    """Each function of a simulated library that is imported there, and by which object."""
    found = {}
    for file in sorted(folder.glob("*.so*")):
        for symbol in elf.imports(file):
            family = symbol.library.partition(".so.")[0]
            if family in SIMULATED or (not family and FAMILIES.fullmatch(symbol.name) and not REAL.match(symbol.name)):
                found[symbol.name] = file.name
    return found


def torch_folder(python: str) -> Path:
    ask = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def imported(sim_python: str) -> dict[str, str]:
    return wanted(torch_folder(sim_python) / "lib") | dict.fromkeys(OLDER, "an older PyTorch")


def test_there_is_much_to_find(imported: dict[str, str]) -> None:
    """The reader reads: these have been imported by every PyTorch so far."""
    assert len(imported) > 600
    assert {"cudaMalloc", "cublasGemmEx", "cudnnBackendExecute", "cusparseLtMatmul", "cuptiSubscribe"} < set(imported)
    assert {"ncclAllReduce", "ncclCommInitAll", "ncclCommInitRankConfig"} < set(imported)
    assert {"cuLaunchKernel", "cusolverDnCreate", "cusparseSpMM", "cufftXtExec", "__cudaRegisterFunction"} < set(
        imported
    )


def test_everything_imported_exists(imported: dict[str, str]) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", cudasim.library()], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    missing = {name: imported[name] for name in sorted(imported.keys() - exported)}
    assert not missing, f"in no table of cudasim/tables, and not written by hand: {missing}"


def test_nothing_imported_is_refused(imported: dict[str, str]) -> None:
    folder = ROOT / "cudasim" / "tables"
    if not folder.is_dir():
        pytest.skip("not in a source tree")
    tables = runpy.run_path(str(folder / "generate.py"))["tables"](folder)
    # It would draw the nodes of a graph, which are not kept. Only CUDAGraph.debug_dump() calls it.
    refused = {"cudaGraphDebugDotPrint"} ^ {
        name for table in tables.values() for name, entry in table.entries.items() if entry.refused
    }
    assert not sorted(refused & imported.keys()), "PyTorch imports them: say what they do"


def test_the_real_libraries_that_stay(forked_on_device: Callable[..., Result], sim_python: str) -> None:
    """They load beside the simulated ones, and the simulated ones are what the names of the others mean."""
    linked = {name for file in (torch_folder(sim_python) / "lib").glob("*.so*") for name in elf.needed(file)}
    # PyTorch 2.15.0 is no longer linked with cuRAND.
    real = [name for name in ("libcurand.", "libcufile.") if any(each.startswith(name) for each in linked)]
    assert "libcufile." in real
    done = forked_on_device(
        "-c",
        f"""
import ctypes, torch
later, cuda = {LATER if device.cuda() > 12 else ()}, {device.cuda()}
torch.zeros(1, device="cuda")
mapped = set(line.split()[-1] for line in open("/proc/self/maps") if "/" in line)
def lies(name):
    return [path for path in mapped if path.rsplit("/", 1)[-1].startswith(name)]
for name in (*{real}, *later):
    assert lies(name), name
for name in ("libcublas.", "libcublasLt.", "libcudnn", "libcusolver.", "libcusparse.", "libcufft.", "libcusparseLt.",
             "libcudart", "libcuda.", "libcupti.", "libnvidia-ml.", "libnccl."):
    assert all("cudasim/" in path for path in lies(name)) and lies(name), (name, lies(name))
assert ctypes.CDLL("libcudart.so.%d" % cuda).cudaMalloc
assert ctypes.CDLL("libcublas.so.%d" % cuda).cublasSgemm_v2 and ctypes.CDLL("libcuda.so.1").cuInit
print(torch.cuda.nccl.version())
""",
    )
    assert done.code == 0, done.err
