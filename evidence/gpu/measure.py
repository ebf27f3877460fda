"""python -m evidence.gpu.measure: what the context and the libraries take of the device, as JSON.

Each line of it is what the whole device has in use (NVML) beyond what was in use before this process came and what
PyTorch's allocator has reserved, in bytes. On a GPU that others use at the same time the numbers mean nothing.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable

import torch

from tests.on_device.simulated.ending import leave


class Memory(ctypes.Structure):  # nvmlMemory_t
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def device_used() -> Callable[[], int]:
    """A function that asks NVML for the bytes in use on the device that PyTorch calls 0. Makes no context."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")

    def call(name: str, *arguments: object) -> None:
        status = getattr(nvml, name)(*arguments)
        if status != 0:
            raise SystemExit(f"{name} failed with NVML error {status}")

    call("nvmlInit_v2")
    properties = torch.cuda.get_device_properties(0)
    place = f"{properties.pci_domain_id:08x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    handle = ctypes.c_void_p()
    call("nvmlDeviceGetHandleByPciBusId_v2", place.encode(), ctypes.byref(handle))

    def used() -> int:
        memory = Memory()
        call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        return int(memory.used)

    return used


def steps() -> list[tuple[str, Callable[[], object]]]:
    def gemm() -> object:
        a = torch.zeros(512, 512, device="cuda")
        return a @ a

    def gemm_half() -> object:
        a = torch.zeros(512, 512, device="cuda", dtype=torch.bfloat16)
        return a @ a

    def convolution() -> object:
        return torch.nn.functional.conv2d(
            torch.zeros(8, 16, 64, 64, device="cuda"), torch.zeros(32, 16, 3, 3, device="cuda")
        )

    def linalg() -> object:
        return torch.linalg.solve(torch.eye(64, device="cuda"), torch.zeros(64, 1, device="cuda"))

    def sparse() -> object:
        return torch.sparse.mm(torch.eye(64, device="cuda").to_sparse(), torch.zeros(64, 64, device="cuda"))

    return [
        ("context", lambda: torch.cuda.mem_get_info()),
        ("first kernel", lambda: torch.zeros(1, device="cuda").add_(1)),
        ("first float32 product", gemm),
        ("first bfloat16 product", gemm_half),
        ("first convolution", convolution),
        ("first solve", linalg),
        ("first Fourier transform", lambda: torch.fft.fft(torch.zeros(1024, device="cuda"))),
        ("first sparse product", sparse),
    ]


def main() -> None:
    used = device_used()
    before = used()
    found, last = {}, 0
    for name, step in steps():
        step()
        torch.cuda.synchronize()
        beyond = used() - before - torch.cuda.memory_reserved()
        found[name] = beyond - last
        last = beyond
    properties = torch.cuda.get_device_properties(0)
    device = {
        "name": properties.name,
        "total": properties.total_memory,
        "capability": f"{properties.major}.{properties.minor}",
        "count": torch.cuda.device_count(),
    }
    workspaces = {}
    for name, variable in (("cuBLAS", "_cuda_getCublasWorkspaceSize"), ("cuBLASLt", "_cuda_getCublasLtWorkspaceSize")):
        if hasattr(torch._C, variable):
            workspaces[name] = getattr(torch._C, variable)()
    torch._C._cuda_clearCublasWorkspaces()
    start = torch.cuda.memory_allocated()
    a = torch.zeros(64, 64, device="cuda")
    b = a @ a
    workspaces["cuBLAS, as allocated"] = torch.cuda.memory_allocated() - start - a.nbytes - b.nbytes
    print(json.dumps({"device": device, "torch": torch.__version__, "beyond": found, "workspaces": workspaces}))


if __name__ == "__main__":
    main()
    leave()
