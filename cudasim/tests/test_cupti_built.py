"""The libraries as they are built and preloaded: which of CUPTI's functions a client finds, and whose code a library's
memory is asked for from."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cudasim
from tests.conftest import clean_environment

LOOK = r"""
import ctypes, json, sys
library = ctypes.CDLL("libcupti.so.13", mode=4 | 2)  # the one that is there
look = ctypes.CDLL(None).dlsym
look.restype, look.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)
names = sys.argv[1:]
version = ctypes.c_uint32()
library.cuptiGetVersion(ctypes.byref(version))
print(json.dumps([version.value, [name for name in names if look(library._handle, name.encode())]]))
"""
ALWAYS = ["cuptiSubscribe", "cuptiActivityEnable", "cuptiActivityGetNextRecord", "cuptiFinalize"]
SINCE = {
    "cuptiGetErrorMessage": 1202,
    "cuptiActivityEnableDriverApi": 1205,
    "cuptiActivityEnableAllocationSource": 1206,
    "cuptiSubscribe_v2": 1300,
    "cuptiActivityEnable_v2": 1302,
    "cuptiActivityGetStructSize": 1302,
    "cuptiActivityGetNextRecord_v2": 1303,
    "cuptiIsTracingSessionRunning": 1303,
    "cuptiGetCudaEventId": 1304,
}
VERSIONS = {"11.8": 18, "12.2": 20, "12.6": 24, "13.0": 130001, "13.2": 130202, "13.3": 130301, "13.5": 130500}


def on_device(*command: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**clean_environment(), **cudasim.variables(), **settings}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done


@pytest.mark.parametrize("release", VERSIONS)
def test_a_release_has_the_functions_that_it_had(release: str) -> None:
    major, minor = map(int, release.split("."))
    wanted = [*ALWAYS, *SINCE, "cuptiNeverWas"]
    found = json.loads(on_device(sys.executable, "-c", LOOK, *wanted, CUPTIMEM_SIM_CUPTI=release).stdout)
    there = [name for name, since in SINCE.items() if since <= major * 100 + minor]
    assert found == [VERSIONS[release], [*ALWAYS, *there]]


HANDLES = r"""
import ctypes, json
def call(file, name, *arguments):
    assert getattr(ctypes.CDLL(file, mode=4 | 2), name)(*arguments) == 0
cupti = ctypes.CDLL("libcupti.so.13", mode=4 | 2)
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("more", ctypes.c_void_p * 3)]
def file_of(address):
    info = Info()
    assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info))
    return info.file.decode().rpartition("/")[2]
SIZE = 1 << 20
buffers, records = [], []
SIZES = ctypes.POINTER(ctypes.c_size_t)
@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), SIZES, SIZES)
def request(buffer, size, most):
    buffers.append((ctypes.c_uint64 * (SIZE // 8))())
    buffer[0], size[0], most[0] = ctypes.addressof(buffers[-1]), SIZE, 0
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
def complete(context, stream, buffer, size, valid):
    words = (ctypes.c_uint64 * (valid // 8)).from_address(buffer)
    for at in range(0, len(words), 16):
        operation = words[at] >> 32
        records.append([operation, words[at + 2], words[at + 3], file_of(words[at + 5])])
assert cupti.cuptiActivityRegisterCallbacks(request, complete) == 0
assert cupti.cuptiActivityEnable(49) == 0
handle = ctypes.c_void_p()
for file, name, end in (
    ("libcublas.so.13", "cublasCreate_v2", "cublasDestroy_v2"),
    ("libcudnn.so.9", "cudnnCreate", "cudnnDestroy"),
    ("libcusolver.so.12", "cusolverDnCreate", "cusolverDnDestroy"),
    ("libcusparse.so.12", "cusparseCreate", "cusparseDestroy"),
):
    call(file, name, ctypes.byref(handle))
    call(file, end, handle)
address = ctypes.c_void_p()
call("libcudart.so.13", "cudaMalloc", ctypes.byref(address), ctypes.c_size_t(4096))
assert cupti.cuptiActivityFlushAll(1) == 0
print(json.dumps(records))
"""


def test_a_librarys_own_memory_is_asked_for_from_its_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = json.loads(on_device(sys.executable, "-c", HANDLES, CUPTIMEM_SIM_LOG=str(log)).stdout)
    libraries = ["libcublas.so.13", "libcudnn.so.9", "libcusolver.so.12", "libcusparse.so.12"]
    sizes = [8 << 20, 8 << 20, 8 << 20, 2 << 20]
    *own, last = found
    assert [(operation, size, file) for operation, _, size, file in own] == [
        (operation, size, file) for size, file in zip(sizes, libraries, strict=True) for operation in (1, 2)
    ]
    assert own[0][1] == own[1][1]
    assert last[2] == 4096 and "ffi" in last[3]
    assert os.path.getsize(log) == 64 * 10  # the context, and each of these
