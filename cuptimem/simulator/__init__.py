"""The simulated CUDA device's shared libraries, which lie in this directory, and how a process gets them.

Nothing here loads them: a child process is started with them in LD_PRELOAD. setup.py reads this file too (by its path),
so it imports nothing of cuptimem.
"""

from __future__ import annotations

from pathlib import Path

CORE = "libcuptimem_sim.so"

# Libraries whose names the core takes over. Each is an empty library with that SONAME which needs the core, so that
# whoever asks the dynamic linker for the name gets the core's functions and the real library is never mapped. The value
# is the version node that the real library's clients ask for (None: it has none).
#
# cuBLAS cannot be taken without cuSOLVER, cuSPARSE and cuFFT: the real ones would want its private symbols.
# Left as they are, for they work or at least load without a driver: NVRTC, nvJitLink, cuRAND, cuFile, NVSHMEM, NCCL.
ALIASES: dict[str, str | None] = {
    "libcuda.so.1": None,
    "libcudart.so.13": "libcudart.so.13",
    "libcupti.so.13": "libcupti.so.13",
    "libnvidia-ml.so.1": None,
    "libcublas.so.13": "libcublas.so.13",
    "libcublasLt.so.13": "libcublasLt.so.13",
    "libcudnn.so.9": "libcudnn.so.9",
    "libcusolver.so.12": "libcusolver.so.12",
    "libcusparse.so.12": "libcusparse.so.12",
    "libcufft.so.12": "libcufft.so.12",
    "libcusparseLt.so.0": None,
}


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
    return [library(), *map(_existing, ALIASES)]


def _existing(name: str) -> Path:
    path = folder() / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: cuptimem was not built for Linux, or not completely; install it again"
        )
    return path
