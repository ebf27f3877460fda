"""Elements of tensors on the simulated device, and which are known: cudasim/csrc/core/values.c through ctypes.

Runs inside the simulated process, imports nothing that torch has not loaded.
"""

from __future__ import annotations

import ctypes
import os
import threading
from types import ModuleType
from typing import Any


class _Tensor(ctypes.Structure):
    """cm_sim_tensor."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("item", ctypes.c_int64),
        ("dimensions", ctypes.c_int64),
        ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class Elements:
    """Reads and writes device memory without a host read that counts. All tensors made here are on the CPU.

    PyTorch's operators are called as `torch.ops.aten`, which no mode of the program sees.
    """

    def __init__(self, torch: ModuleType) -> None:
        simulator = ctypes.CDLL(None)
        self._read = simulator.cm_sim_values_read
        self._read.restype = ctypes.c_int64
        self._read.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._write = simulator.cm_sim_values_write
        self._write.restype = ctypes.c_int
        self._write.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._aten = torch.ops.aten
        self._cpu = torch.device("cpu")
        self._bool = torch.bool

    def empty(self, shape: Any, dtype: Any) -> Any:
        return self._aten.empty.memory_format(shape, dtype=dtype, device=self._cpu)

    def read(self, tensor: Any) -> tuple[Any, Any] | None:
        """Its elements, and a mask of those that are unknown (they are zero) or None where all are known.

        None: it is no memory of the device.
        """
        values, known = self.empty(tensor.shape, tensor.dtype), self.empty(tensor.shape, self._bool)
        described = _described(tensor)
        found = self._read(ctypes.addressof(described), values.data_ptr(), known.data_ptr())
        if found < 0:
            return None
        return values, None if found == tensor.numel() else self._aten.logical_not.default(known)

    def write(self, tensor: Any, values: Any, unknown: Any) -> None:
        """values: of its shape, on the CPU. unknown: a mask of its shape, or None where all are known."""
        values = self._aten.contiguous.default(self._aten._to_copy.default(values, dtype=tensor.dtype))
        known = None if unknown is None else self._aten.logical_not.default(self._aten.contiguous.default(unknown))
        described = _described(tensor)
        address = None if known is None else known.data_ptr()
        self._write(ctypes.addressof(described), values.data_ptr(), address)

    def forget(self, tensor: Any) -> None:
        """What a kernel has written into it is unknown."""
        described = _described(tensor)
        self._write(ctypes.addressof(described), None, None)


class OneThread:
    """A context in which PyTorch's CPU operators of this thread start no others.

    OpenMP's threads do not survive fork(), and a child that needs them then hangs: programs that fork must
    not get any from us.
    """

    def __init__(self) -> None:
        library = _openmp()
        self._get = None if library is None else library.omp_get_max_threads
        self._set = None if library is None else library.omp_set_num_threads
        self._thread = threading.local()

    def __enter__(self) -> None:
        """Does not nest: none of our operators is on the device."""
        self._thread.before = 1 if self._get is None else self._get()
        if self._set is not None and self._thread.before > 1:
            self._set(1)

    def __exit__(self, *_: object) -> None:
        if self._set is not None and self._thread.before > 1:
            self._set(self._thread.before)


def passed_over() -> int:
    """Requests of this process that its allocator refused to PyTorch's convolutions, which went on with less."""
    count = ctypes.CDLL(None).cm_sim_passed_over
    count.restype = ctypes.c_int64
    return int(count())


def _openmp() -> ctypes.CDLL | None:
    """The one that is loaded; PyTorch brings its own, under a name of its own."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            path = line.rstrip("\n").partition("/")[2]
            if os.path.basename(path).startswith(("libgomp", "libiomp5", "libomp")):
                return ctypes.CDLL(f"/{path}")
    return None


def _described(tensor: Any) -> _Tensor:
    dimensions = tensor.dim()
    array = ctypes.c_int64 * dimensions
    return _Tensor(tensor.data_ptr(), tensor.element_size(), dimensions, array(*tensor.shape), array(*tensor.stride()))
