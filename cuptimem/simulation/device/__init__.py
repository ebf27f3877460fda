"""The simulated CUDA device's shared libraries, which lie in this directory, and how a process gets them.

Nothing here loads them: a child process is started with them in LD_PRELOAD. setup.py reads this file too (by its path),
so it imports nothing of cuptimem.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CORE = "libcuptimem_sim.so"
CUPTI = "libcupti.so.13"  # of whatever release it is: what a CUDA 13 PyTorch asks for
VARIABLES = tuple(  # what the device, and a run on it, read of the environment
    f"CUPTIMEM_SIM_{name}"
    for name in (
        *("CHILD", "CONTEXT", "CONV_WORKSPACE", "COPY_MAX", "CUPTI", "DEVICE", "DEVICES", "EVENT_LAG", "HANDLE_BYTES"),
        *("HOSTILE", "LOG", "MEMORY", "NCCL", "REPORT", "SMI_REPORT", "TIMING", "TRACE", "VALUES"),
    )
)


class Alias(NamedTuple):
    """An almost empty library with another's name that needs the core: whoever asks the dynamic linker for that name
    gets the core's functions, and the real library is never mapped. Its own few instructions are what a library's calls
    of the driver come from."""

    soname: str
    version: str | None  # the version node that clients of the real one ask for
    file: str


# cuBLAS cannot be taken without cuSOLVER, cuSPARSE and cuFFT: the real ones would want its private symbols.
# Left as they are, for they work or at least load without a driver: NVRTC, nvJitLink, cuRAND, cuFile, NVSHMEM.
# One file's name differs from its SONAME: where PyTorch sees "libcudart.so" among the mapped files it loads all the
# real libraries by their paths, which would cost each process 1.6 GB of addresses and 200 MB of memory for nothing. The
# name's first part stays, for other programs look for that.
ALIASES = (
    Alias("libcuda.so.1", None, "libcuda.so.1"),
    Alias("libcudart.so.13", "libcudart.so.13", "libcudart-sim.so.13"),
    *(
        Alias(name, name, name)
        for name in (
            CUPTI,
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libcudnn.so.9",
            "libcusolver.so.12",
            "libcusparse.so.12",
            "libcufft.so.12",
        )
    ),
    Alias("libcusparseLt.so.0", None, "libcusparseLt.so.0"),
    Alias("libnvidia-ml.so.1", None, "libnvidia-ml.so.1"),
    Alias("libnccl.so.2", None, "libnccl.so.2"),
)


def folder() -> Path:
    """Where the libraries lie: TRITON_LIBCUDA_PATH of a process that runs on them."""
    return Path(__file__).resolve().parent


def library() -> Path:
    """The core. FileNotFoundError where it was not built (elsewhere than on Linux)."""
    return _existing(CORE)


def preload() -> list[Path]:
    """What LD_PRELOAD of a process must begin with, in this order. FileNotFoundError if any of it was not built.

    The dynamic linker separates that variable's paths by spaces and colons, and knows no way to quote either.
    """
    return [library(), *(_existing(alias.file) for alias in ALIASES)]


def _existing(name: str) -> Path:
    path = folder() / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: cuptimem was not built for Linux, or not completely; install it again"
        )
    return path
