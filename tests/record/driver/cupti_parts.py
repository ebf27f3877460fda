"""Parts of the programs that the tests of the CUPTI thread run."""

from collections.abc import Callable
from typing import Any

# Runs such a program (conftest.py).
Child = Callable[..., dict[str, Any]]

# A second client of CUPTI.
CLIENT = """
api = ctypes.CDLL(None)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
nobody = CALLBACK(lambda *_: None)

class Names(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("old", ctypes.c_char_p),
                ("old_size", ctypes.c_size_t), ("multiple", ctypes.c_uint8)]

def subscribe(name=None):
    handle = ctypes.c_void_p()
    if name is None:
        return api.cuptiSubscribe(ctypes.byref(handle), nobody, None), handle
    asked = Names(size=32, name=name)
    return api.cuptiSubscribe_v2(ctypes.byref(handle), nobody, None, ctypes.byref(asked)), handle
"""

# CUDA is there, and so the CUPTI thread.
START = """
cuda = ctypes.CDLL({folder!r} + "/libcuda.so.1")
cuda.cuInit(0)
with cuptimem.profile("a.cmem"):
    during = state()
cupti = None
for line in Path("/proc/self/maps").read_text().splitlines():
    if "libcupti.so" in line:
        cupti = ctypes.CDLL(line.split()[-1])
value = lambda name: ctypes.c_int.in_dll(cupti, name).value if hasattr(cupti, name) else None
"""
