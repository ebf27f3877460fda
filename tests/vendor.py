"""NVIDIA's headers and CUPTI, which come with PyTorch's CUDA build."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

# The wheel has no crt/host_defines.h, and nothing in it changes a layout but the alignment.
HOST_DEFINES = """
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __host__
#define __device__
#define __forceinline__ inline
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
"""


def wheel() -> Path:
    """The folder of NVIDIA's CUDA 13 wheels; skips where there is none."""
    python = Path(os.environ.get("CUPTIMEM_CUDA_PYTHON") or ROOT / ".venv-cuda" / "bin" / "python")
    if not python.exists():
        pytest.skip("no CUDA build of PyTorch")
    ask = "import sys; print(*(p for p in sys.path if p.endswith('-packages')), sep='\\n')"
    seen = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True, timeout=120).stdout
    for path in seen.splitlines():
        if (Path(path) / "nvidia/cu13/include/cupti_activity.h").exists():
            return Path(path) / "nvidia/cu13"
    pytest.skip("no CUPTI headers of CUDA 13")


def surviving_wheel() -> Path:
    """The same, if its library may be called: without a driver 13.2 ends the process, and later ones refuse all."""
    folder = wheel()
    text = (folder / "include/cupti_version.h").read_text()
    version = int(re.findall(r"#define CUPTI_API_VERSION\s+(\d+)", text)[0])
    if version >= 130200:
        pytest.skip(f"CUPTI {version} cannot be asked without a driver")
    return folder
