"""python programs.py NAME TRACE LIBRARY: a CUDA program without PyTorch; prints as JSON what it was given, and where.

Started by cuptimem run it makes no recording of its own.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuptimem
from cuptimem import _core
from tests.on_device.simulated import foreign

MIB = 1 << 20
BOUND = 64 << 10
TRACE = Path(sys.argv[2])
PLAIN = bool(os.environ.get("PROGRAM_RECORDED"))  # by whoever started us


def line() -> int:
    return sys._getframe(1).f_lineno


@contextlib.contextmanager
def recording(trace: Path = TRACE, **settings: Any) -> Iterator[Any]:
    if PLAIN:
        yield None
        return
    with cuptimem.profile(trace, **settings) as prof:
        yield prof


def work(lib: Any, times: int = 50) -> dict[str, Any]:
    """Allocations of every kind that every release has, most of them freed."""
    kept = {}
    for number in range(times):
        address = lib.foreign_malloc((1 + number % 7) * 2 * MIB)
        assert lib.foreign_free(address) == 0
    kept["device"] = [lib.foreign_malloc(4 * MIB), line(), 4 * MIB]
    kept["managed"] = [lib.foreign_managed(2 * MIB), line(), 2 * MIB]
    kept["host"] = [lib.foreign_host(MIB), line(), MIB]
    kept["async"] = [lib.foreign_async(6 * MIB), line(), 6 * MIB]
    handle = ctypes.c_uint64()
    kept["mapped"] = [lib.foreign_map(8 * MIB, 0, ctypes.byref(handle)), line(), 8 * MIB]
    kept["driver"] = [lib.foreign_driver_malloc(10 * MIB), line(), 10 * MIB]
    thread = lib.foreign_thread(12 * MIB, 5)
    other = threading.Thread(target=lambda: kept.update(other=[lib.foreign_malloc(14 * MIB), line(), 14 * MIB]))
    other.start()
    other.join()
    assert thread and all(row[0] for row in kept.values()), kept
    return {"kept": kept, "thread": thread, "handle": handle.value}


def plain(lib: Any) -> dict[str, Any]:
    with recording():
        return work(lib)


def by_ctypes(lib: Any) -> dict[str, Any]:
    """CUDA called by ctypes itself, with nothing between."""
    runtime = ctypes.CDLL(None)
    with recording():
        address = ctypes.c_void_p()
        runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(6 * MIB))
        at = line() - 1
    return {"address": address.value, "line": at}


def held_gil(lib: Any) -> dict[str, Any]:
    """A thread without Python allocates while the main thread keeps the GIL: it must not wait for it."""
    holding = foreign.load(Path(sys.argv[3]), hold_the_gil=True)
    with recording():
        assert lib.foreign_malloc(2 * MIB)
        assert lib.foreign_begin(2 * MIB, 2000) == 0
        ended = holding.foreign_ended(60_000)
        kept = lib.foreign_join()
        time.sleep(0.01)
    return {"ended": bool(ended), "kept": kept}


def forked(lib: Any) -> dict[str, Any]:
    """Children that do nothing, that use CUDA (which refuses), that replace themselves, in mid-run."""
    codes = []
    with recording():
        assert lib.foreign_malloc(2 * MIB)
        for kind in ("nothing", "cuda", "exec"):
            child = os.fork()
            if child == 0:
                if kind == "cuda":
                    os._exit(3 if lib.foreign_malloc(2 * MIB) is None else 4)
                if kind == "exec":
                    os.execv(sys.executable, [sys.executable, "-S", "-c", "pass"])
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            assert lib.foreign_malloc(2 * MIB)
        codes.append(subprocess.run([sys.executable, "-S", "-c", "pass"]).returncode)
        assert lib.foreign_malloc(4 * MIB)
    return {"codes": codes}


def twice(lib: Any) -> dict[str, Any]:
    """Recordings one after the other, with allocations and frees between them; the last one is looked at."""
    given = []
    with recording(TRACE.with_name("first.cmem")):
        given.append(lib.foreign_malloc(2 * MIB))
    for _ in range(3):
        assert lib.foreign_free(lib.foreign_malloc(8 * MIB)) == 0
    given.append(lib.foreign_malloc(4 * MIB))
    _sleep()
    began = time.monotonic_ns()
    with recording():
        for address in given:
            assert lib.foreign_free(address) == 0
        assert lib.foreign_malloc(6 * MIB)
    return {"began": began}


def _sleep() -> None:
    time.sleep(0.002)


def windows(lib: Any) -> dict[str, Any]:
    """An inner window has the driver level of its own stretch."""
    with recording():
        outer = lib.foreign_malloc(2 * MIB)
        with recording(TRACE.with_name("inner.cmem")):
            inside = lib.foreign_malloc(4 * MIB)
            assert lib.foreign_free(outer) == 0
        assert lib.foreign_malloc(6 * MIB)
    return {"outer": outer, "inside": inside}


def bounded(lib: Any) -> dict[str, Any]:
    """Far past the file's bound."""
    kept = []
    with recording(max_size=BOUND) as prof:
        for number in range(40_000):
            address = lib.foreign_malloc(2 * MIB)
            if number % 4000 == 0:
                kept.append(address)
            else:
                lib.foreign_free(address)
    return {"kept": kept, "lost": prof.report.lost.events, "above": TRACE.stat().st_size / BOUND}


def killed(lib: Any) -> dict[str, Any]:
    """SIGKILL with everything published, and the collector's next turn not yet come."""
    cuptimem.profile(TRACE).__enter__()
    print(json.dumps(work(lib)), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def threads(lib: Any) -> dict[str, Any]:
    """Eight threads of Python and one without, all at once, across stops and starts of the recording."""
    done = threading.Event()

    def churn(number: int) -> None:
        while not done.is_set():
            lib.foreign_free(lib.foreign_malloc((1 + number) * 2 * MIB))
            # No faster than a collector that shares its core with others can write.
            while _core.capture_active() and _core.capture_counts()["ring_blocks_used"] > 400:
                time.sleep(0.001)

    workers = [threading.Thread(target=churn, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    counts = []
    for number in range(5):
        with recording(TRACE if number == 4 else TRACE.with_name(f"{number}.cmem")):
            assert lib.foreign_thread(2 * MIB, 200)
        counts.append(_core.capture_counts()["lost_events"])
    done.set()
    for worker in workers:
        worker.join()
    return {"lost": counts}


class _Channels(ctypes.Structure):
    """cudaChannelFormatDesc."""

    _fields_ = [(name, ctypes.c_int) for name in ("x", "y", "z", "w", "f")]


class _Extent(ctypes.Structure):
    """cudaExtent."""

    _fields_ = [(name, ctypes.c_size_t) for name in ("width", "height", "depth")]


FLOATS, BYTES, COMPRESSED = _Channels(32, 0, 0, 0, 2), _Channels(8, 8, 8, 8, 1), _Channels(8, 8, 8, 8, 17)


def _arrays(runtime: Any) -> dict[str, int]:
    """One of each kind that the runtime makes; 4, 4, 6 and 2 MiB, and 21 KiB compressed in three levels."""
    given = {}
    for name, format_, extent, levels, flags in (
        ("flat", FLOATS, _Extent(1 << 20, 0, 0), 0, 0),
        ("image", BYTES, _Extent(1024, 1024, 0), 0, 0),
        ("layers", BYTES, _Extent(512, 512, 6), 0, 1),
        ("levels", COMPRESSED, _Extent(256, 128, 0), 3, 0),
        ("volume", BYTES, _Extent(128, 128, 32), 0, 0),
    ):
        array = ctypes.c_void_p()
        if levels:
            done = runtime.cudaMallocMipmappedArray(ctypes.byref(array), ctypes.byref(format_), extent, levels, flags)
        elif extent.depth:
            done = runtime.cudaMalloc3DArray(ctypes.byref(array), ctypes.byref(format_), extent, flags)
        else:
            size = ctypes.c_size_t(extent.width), ctypes.c_size_t(extent.height)
            done = runtime.cudaMallocArray(ctypes.byref(array), ctypes.byref(format_), *size, flags)
        assert done == 0 and array.value, (name, done)
        given[name] = array.value
    return given


def arrays(lib: Any) -> dict[str, Any]:
    """The runtime's and the driver's, half of them freed."""
    runtime = ctypes.CDLL(None)
    with recording():
        given = _arrays(runtime)
        driver = lib.foreign_array(1000, 100)
        assert runtime.cudaFreeArray(ctypes.c_void_p(given["image"])) == 0
        assert runtime.cudaFreeArray(ctypes.c_void_p(given["levels"])) != 0, "it is of the other kind"
        first = ctypes.c_void_p()
        assert runtime.cudaGetMipmappedArrayLevel(ctypes.byref(first), ctypes.c_void_p(given["levels"]), 0) == 0
        again = _arrays(runtime)
        assert runtime.cudaFreeMipmappedArray(ctypes.c_void_p(given["levels"])) == 0
        assert lib.foreign_array_free(driver) == 0
    return {"given": given, "again": again}


def reset(lib: Any) -> dict[str, Any]:
    """A device's context ends with all kinds of memory in it, by the call that is named; then there is one again."""
    runtime, how = ctypes.CDLL(None), os.environ["PROGRAM_RESETS"]
    runtime.cudaSetDevice(1)
    with recording():
        assert lib.foreign_malloc(2 * MIB)  # on another device
        own = ctypes.c_void_p()
        if how.startswith("cuCtx"):
            assert runtime.cuInit(0) == runtime.cuCtxCreate_v2(ctypes.byref(own), 0, 0) == 0
        elif how.endswith("Release_v2"):
            assert runtime.cuInit(0) == runtime.cuDevicePrimaryCtxRetain(ctypes.byref(own), 0) == 0
            assert runtime.cuCtxSetCurrent(own) == 0
        else:
            runtime.cudaSetDevice(0)
        if how.endswith("Release_v2"):  # the runtime would hold it as well
            assert lib.foreign_driver_malloc(10 * MIB) and lib.foreign_array(1024, 1024)
        else:
            for size in (100, 4 * MIB, 300_000):
                assert lib.foreign_malloc(size)
            assert lib.foreign_managed(2 * MIB) and lib.foreign_async(6 * MIB) and lib.foreign_driver_malloc(10 * MIB)
            assert lib.foreign_async_free(lib.foreign_async(8 * MIB)) == 0
            _arrays(runtime)
        handle = ctypes.c_uint64()
        assert lib.foreign_map(8 * MIB, 0, ctypes.byref(handle)), "which lives on"
        if how.startswith("cuCtx"):
            assert runtime.cuCtxDestroy_v2(own) == 0
        elif how == "cudaDeviceReset":
            assert runtime.cudaDeviceReset() == 0
        else:
            assert getattr(runtime, how)(0) == 0
        runtime.cudaSetDevice(0)
        kept = lib.foreign_malloc(14 * MIB)
        assert kept
    return {"kept": kept, "handle": handle.value}


def refused(lib: Any) -> dict[str, Any]:
    """What the device does not do: each call fails, and nothing came or went."""
    runtime, word, nothing = ctypes.CDLL(None), ctypes.c_uint64(), (ctypes.c_char * 256)()
    runtime.cudaIpcOpenMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_char * 64, ctypes.c_uint]
    out, some, handle = ctypes.byref(word), ctypes.c_void_p(4096), (ctypes.c_char * 64)()
    with recording():
        kept = lib.foreign_malloc(2 * MIB)
        results = [
            runtime.cudaIpcOpenMemHandle(out, handle, 1),
            runtime.cudaIpcCloseMemHandle(some),
            runtime.cuMemImportFromShareableHandle(out, some, 1),
            runtime.cuMulticastCreate(out, nothing),
        ]
    return {"kept": kept, "results": results}


PROGRAMS: dict[str, Callable[[Any], dict[str, Any]]] = {
    program.__name__: program
    for program in (
        plain,
        by_ctypes,
        held_gil,
        forked,
        twice,
        windows,
        bounded,
        killed,
        threads,
        arrays,
        reset,
        refused,
    )
}


if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](foreign.load(Path(sys.argv[3])))))
