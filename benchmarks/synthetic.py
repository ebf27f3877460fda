"""Synthetic traces of a training run, for tests and benchmarks: synthetic.h says of what program."""

import ctypes
import os
from functools import cache
from pathlib import Path

from tests.build import ROOT, WARNINGS, build

_HERE = Path(__file__).resolve().parent
_DEVICES = ("cpu", "cuda", "scattered")
_BATCH_BYTES = 512 * 1024
_COUNTS = ("events", "allocations", "frees", "steps")
_BYTES = ("peak_bytes", "live_bytes", "leaked_bytes", "seed_bytes")


class _Truth(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in _COUNTS),
        *((name, ctypes.c_int64) for name in _BYTES),
        *((name, ctypes.c_uint64) for name in ("segments", "moments", "file_bytes")),
    ]


@cache
def _library() -> ctypes.CDLL:
    sources = [_HERE / "synthetic.c", *(ROOT / "csrc/trace" / f"{name}.c" for name in ("encode", "writer", "crc32c"))]
    flags = ["-std=gnu11", "-O2", "-fno-strict-aliasing", "-fPIC", "-shared", *WARNINGS]
    library = ctypes.CDLL(str(build("synthetic.so", sources, *flags)))
    library.cm_synthetic_write.argtypes = [
        *(ctypes.c_char_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t),
        ctypes.POINTER(_Truth),
    ]
    return library


def write_synthetic(
    path: str | os.PathLike[str], events: int, seed: int = 0, on: str = "cpu", windows: int = 0
) -> dict[str, int]:
    """Writes a trace of at least so many events; what is in it. Raises OSError."""
    truth = _Truth()
    status = _library().cm_synthetic_write(
        os.fsencode(path), _DEVICES.index(on), events, windows, seed, _BATCH_BYTES, ctypes.byref(truth)
    )
    if status < 0:
        raise OSError(-status, os.strerror(-status), os.fspath(path))
    return {name: getattr(truth, name) for name, _ in _Truth._fields_}
