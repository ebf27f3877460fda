"""The shared libraries of the simulated CUDA device (csrc), which are in this directory.

A child process is started with them in LD_PRELOAD; this module loads none. setup.py reads this file, too (by its path),
so it imports the standard library alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__version__ = "0.1.0"

CORE = "libcuptimem_sim.so"
CUPTI = ("libcupti.so.13", "libcupti.so.12")  # the names that PyTorch asks for, whichever release is imitated
VARIABLES = tuple(  # of the environment, which the device reads
    f"CUPTIMEM_SIM_{name}"
    for name in (
        *("CONTEXT", "CONV_WORKSPACE", "COPY_MAX", "CUPTI", "DEVICE", "DEVICES", "EVENT_LAG", "HANDLE_BYTES"),
        *("HOSTILE", "LOG", "MEMORY", "NCCL", "REPORT", "TIMING", "TRACE"),
    )
)


class Alias(NamedTuple):
    """An almost empty library that has a real one's name and needs the core.

    A program that asks the dynamic linker for that name gets the core's functions, and the real library is never
    mapped. The alias's few instructions make the calls of the driver that the real library would make.
    """

    soname: str
    version: str | None  # the version node that clients of the real one ask for
    file: str


# The real cuSOLVER, cuSPARSE and cuFFT need private symbols of the real cuBLAS, so all four are replaced. NVRTC,
# nvJitLink, cuRAND, cuFile and NVSHMEM work, or at least load, without a driver: the real ones are used.
# One file's name differs from its SONAME: if PyTorch finds "libcudart.so" among the mapped files, it loads all the real
# libraries by their paths. That would cost each process 1.6 GB of addresses and 200 MB of memory. The name still begins
# with "libcudart", which other programs search for.
ALIASES = (
    Alias("libcuda.so.1", None, "libcuda.so.1"),
    *(Alias(f"libcudart.so.{major}", f"libcudart.so.{major}", f"libcudart-sim.so.{major}") for major in (13, 12)),
    *(
        Alias(name, name, name)
        for name in (
            *CUPTI,
            *("libcublas.so.13", "libcublasLt.so.13", "libcusolver.so.12", "libcufft.so.12"),  # of CUDA 13
            *("libcublas.so.12", "libcublasLt.so.12", "libcusolver.so.11", "libcufft.so.11"),  # of CUDA 12
            *("libcudnn.so.9", "libcusparse.so.12"),
        )
    ),
    Alias("libcusparseLt.so.0", None, "libcusparseLt.so.0"),
    Alias("libnvidia-ml.so.1", None, "libnvidia-ml.so.1"),
    Alias("libnccl.so.2", None, "libnccl.so.2"),
)


def folder() -> Path:
    """The directory of the libraries: TRITON_LIBCUDA_PATH of a process that runs on them."""
    return Path(__file__).resolve().parent


def library() -> Path:
    """The core. FileNotFoundError where it was not built (elsewhere than on Linux)."""
    return _existing(CORE)


def preload() -> list[Path]:
    """The paths that LD_PRELOAD of a process begins with, in this order. FileNotFoundError if one was not built.

    The dynamic linker separates the paths in that variable by spaces and colons, and has no quotes for either.
    """
    return [library(), *(_existing(alias.file) for alias in ALIASES)]


def variables(preloaded: str = "", libraries: Sequence[Path | str] = ()) -> dict[str, str]:
    """The variables of the environment that put a program on the device.

    preloaded: what LD_PRELOAD had. libraries: links to those of `preload`, where its folder's name has a space or
    colon, which is a ValueError otherwise. FileNotFoundError as for `preload`.
    """
    paths = [str(path) for path in libraries or preload()]
    if " " in paths[0] or ":" in paths[0]:
        raise ValueError(f"LD_PRELOAD cannot hold a path with a space or colon, and {folder()} has one")
    preloads = [*paths, *filter(None, [preloaded])]
    return {"LD_PRELOAD": ":".join(preloads), "TRITON_LIBCUDA_PATH": str(Path(paths[0]).parent)}


def _existing(name: str) -> Path:
    path = folder() / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: the simulated device was not built for Linux, or not completely; install it again"
        )
    return path
