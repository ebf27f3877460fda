"""python -m tests.on_device.simulated.driver_programs NAME FOLDER: a program with somebody else's library in it,
recorded, and the driver level compared with the device as it goes. Prints one JSON object, which test_driver.py judges.
"""

import ctypes
import gc
import json
import mmap
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import cuptimem
from cuptimem import _core
from tests.on_device.simulated import checks, driver_checks, driver_events, foreign, recorder_programs
from tests.on_device.simulated.driver_checks import Given
from tests.on_device.simulated.ending import leave

MIB = 1 << 20
FILE = __file__


def line() -> int:
    """Of the caller."""
    return sys._getframe(1).f_lineno


def back_end() -> str:
    """As programs.Program.back_end, of this process; or "pluggable"."""
    if os.environ.get("DRIVER_PLUGGABLE"):
        return "pluggable"
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return "uncached"
    settings = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    return "async" if "cudaMallocAsync" in settings else "expandable" if "expandable" in settings else "native"


class Program:
    """A recording and the files of its device."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.trace = folder / "run.cmem"
        log, report = checks.files()
        assert log is not None and report is not None
        self.log, self.report = log, report
        self.lib = foreign.load(foreign.build(folder / "foreign"))
        self.given: list[Given] = []
        self.back_end = back_end()
        if self.back_end == "pluggable":
            own = torch.cuda.memory.CUDAPluggableAllocator(self.lib._name, "foreign_give", "foreign_take")
            torch.cuda.memory.change_current_allocator(own)
        self.profile = cuptimem.profile(self.trace, **settings)
        self.found: dict[str, Any] = {"looks": 0}

    def look(self, label: str, **keywords: Any) -> driver_checks.Look:
        torch.cuda.synchronize()
        _core.capture_sync()
        try:
            found = driver_checks.look(driver_checks.dump(self.trace), self.log, self.report, **keywords)
        except AssertionError as error:
            raise AssertionError(f"{label}: {error}") from None
        self.found["looks"] += 1
        return found

    def wait_for_a_moment(self) -> None:
        """Until the CUPTI thread has asked for the device's totals."""
        for _ in range(500):
            _core.capture_sync()
            if driver_events.read(driver_checks.dump(self.trace)).moments:
                return
            time.sleep(0.02)
        raise AssertionError("nobody looked at the device for ten seconds")

    def end(self, **keywords: Any) -> dict[str, Any]:
        """After the recording: once more, with what only its end has; returns what is to be judged."""
        last = self.look("at the end", **keywords)
        driver_checks.owned(last, self.given, FILE)
        analysis = _core.analyze(str(self.trace))
        by = driver_checks.all_have_libraries(last)
        return {
            **self.found,
            "events": last.match.events,
            "records": last.match.records,
            "libraries": by,
            "given": len(self.given),
            "used": [[d.used, d.context, d.library] for d in last.used],
            "pooled": last.pooled,
            "unfilled": last.unfilled,
            "bytes": [last.match.bytes(index) for index in range(len(last.used))],
            "driver": analysis.get("driver"),
            "ledger": analysis.get("ledger"),
            "moments": len(last.driver.moments),
            "activity_records": len(last.driver.records),
            "problems": self.profile.report.environment.get("problems", "").splitlines(),
            "lost": self.profile.report.lost.events,
        }

    def add(self, at: int, kind: str, address: int | None, size: int, *, python: bool = True) -> int:
        """The library was asked for it at that line."""
        assert address, f"{kind} of {size} bytes was refused at line {at}"
        self.given.append(Given(kind, address, size, at, foreign.NAME, python))
        return address


# -- every kind of memory, in every back end -------------------------------------------------------------------------


def everything(program: Program) -> dict[str, Any]:
    """What the library can ask for, beside PyTorch in its back end; then all goes back."""
    lib, add = program.lib, program.add
    with program.profile:
        kept = [torch.ones(n, device="cuda") for n in (10, 1000, 300_000, 6_000_000)]
        program.look("tensors")
        program.wait_for_a_moment()
        at = {"device": add(line(), "device", lib.foreign_malloc(4 * MIB), 4 * MIB)}
        at["managed"] = add(line(), "managed", lib.foreign_managed(2 * MIB), 2 * MIB)
        at["host"] = add(line(), "host", lib.foreign_host(3 * MIB), 3 * MIB)
        at["old host"] = add(line(), "host", lib.foreign_old_host(12345), 12345)
        at["async"] = add(line(), "async", lib.foreign_async(6 * MIB), 6 * MIB)
        at["pitch"] = add(line(), "device", lib.foreign_pitch(4096), 4096 * 1024)
        at["array"] = add(line(), "array", lib.foreign_array(1024, 1024), 4 * MIB)
        at["driver"] = add(line(), "device", lib.foreign_driver_malloc(8 * MIB), 8 * MIB)
        at["thread"] = add(line(), "device", lib.foreign_thread(10 * MIB, 5), 10 * MIB, python=False)
        program.look("foreign memory")
        page = mmap.mmap(-1, MIB)
        own = ctypes.addressof(ctypes.c_char.from_buffer(page))
        assert lib.foreign_register(own, MIB) == 0
        add(line() - 1, "registered", own, MIB)
        handle = ctypes.c_uint64()
        mapped = lib.foreign_map(20 * MIB, 0, ctypes.byref(handle))
        for kind, address in (("reserved", mapped), ("physical", handle.value), ("mapped", mapped)):
            add(line() - 2, kind, address, 20 * MIB)
        program.look("virtual memory")
        assert lib.foreign_retain(mapped) == handle.value
        assert lib.foreign_release(handle.value) == 0
        program.look("a reference more, and back")
        with torch.no_grad():
            product = kept[1].view(10, 100) @ kept[1].view(100, 10)
            product_line = line() - 1
        program.look("a product")
        pinned = torch.empty(5 * MIB, dtype=torch.uint8, pin_memory=True)
        program.look("pinned")
        assert lib.foreign_free_nothing() != 0
        program.look("a free that fails")
        totals = program.look("all there")
        program.found["all"] = {
            "bytes": totals.match.bytes(0),
            "pooled": totals.pooled[0],
            "live": [[space, n] for (space, _), (_, n) in totals.match.live.items() if space != "memory"],
        }
        if program.back_end in ("native", "expandable"):
            snapshot = torch.cuda.memory_snapshot()
            program.found["reserved"] = torch.cuda.memory_reserved()
            assert program.found["reserved"] == sum(segment["total_size"] for segment in snapshot)
        else:
            snapshot = []
        for name, free in (("device", "free"), ("managed", "free"), ("host", "host_free"), ("old host", "host_free")):
            assert getattr(lib, f"foreign_{free}")(at[name]) == 0
        program.look("some freed")
        assert lib.foreign_async_free(at["async"]) == 0
        assert lib.foreign_array_free(at["array"]) == 0
        assert lib.foreign_driver_free(at["driver"]) == 0
        for name in ("pitch", "thread"):
            assert lib.foreign_free(at[name]) == 0
        assert lib.foreign_unregister(own) == 0
        assert lib.foreign_unmap(mapped, 20 * MIB, handle.value) == 0
        program.look("all freed")
        again = lib.foreign_malloc(4 * MIB)
        add(line() - 1, "device", again, 4 * MIB)
        del pinned, kept[1:3]
        gc.collect()
        if program.back_end not in ("uncached", "pluggable"):
            torch.cuda.empty_cache()
        program.look("the cache is empty")
        torch.cuda.synchronize()
    done = program.end()
    if program.back_end in ("native", "expandable"):
        last = driver_checks.look(driver_checks.dump(program.trace), program.log, program.report)
        now = torch.cuda.memory_snapshot()
        expandable = program.back_end == "expandable"
        done["reserved_end"] = torch.cuda.memory_reserved()
        done["segments"] = driver_checks.segments(last, now, expandable=expandable)
        assert done["segments"] <= len(snapshot)
    handles = cublas(program)
    assert lib.foreign_free(again) == 0
    return {**done, "cublas": handles, "product_line": product_line, "product": list(product.shape)}


def cublas(program: Program) -> list[list[Any]]:
    """What cuBLAS took for itself: library, bytes, line of ours."""
    driver = driver_events.read(driver_checks.dump(program.trace))
    names = driver_events.libraries(driver)
    return [
        [names[i], event.size, next((f[1] for f in event.frames if f[0] == FILE), 0)]
        for i, event in enumerate(driver.events)
        if event.new and names[i].startswith("libcublas")
    ]


# -- beside what goes wrong, in mid-run, with kernels ------------------------------------------------------------------


def unharmed(program: Program) -> dict[str, Any]:
    """A training with a data loader's workers, its tensors compared with PyTorch's own account."""
    from torch.utils.data import DataLoader

    with program.profile:
        model, loss = recorder_programs.graph()
        for batch in DataLoader([torch.ones(8) for _ in range(16)], batch_size=4, num_workers=2):
            loss = loss + batch.cuda().sum()
        loss.backward()
        own = [program.lib.foreign_malloc(2 * MIB) for _ in range(20)]
        recorder_programs.compare(program.trace, "after backward")
        assert [program.lib.foreign_free(address) for address in own[1:]] == [0] * 19
        del loss
        recorder_programs.compare(program.trace, "without the graph")
        graph = torch.cuda.CUDAGraph()
        x = torch.ones(100, 100, device="cuda")
        with torch.cuda.graph(graph):
            y = x @ x
        graph.replay()
        recorder_programs.compare(program.trace, "with a graph's private pool")
        if os.environ.get("DRIVER_BY_SLOT", "") == "":
            program.look("with a graph's private pool")
    analysis = _core.analyze(str(program.trace))
    report = program.profile.report
    del model, y
    return {
        "driver": analysis["driver"],
        "ledger": analysis["ledger"],
        "peak": report.device("cuda:0").peak.bytes,
        "max": torch.cuda.max_memory_allocated(),
        "lost": report.lost.events,
        "problems": report.environment.get("problems", "").splitlines(),
        "by_slot": sum(e.by_slot for e in driver_events.read(driver_checks.dump(program.trace)).events),
    }


def midrun(program: Program) -> dict[str, Any]:
    """Much is there when the recording begins: it is in the ledger, and what comes and goes is known."""
    lib = program.lib
    kept = [torch.ones(n, device="cuda") for n in (10, 300_000, 6_000_000)]
    first = lib.foreign_malloc(4 * MIB)
    torch.cuda.synchronize()
    time.sleep(0.002)
    began = time.monotonic_ns()
    with program.profile:
        more = torch.ones(8_000_000, device="cuda")
        again = lib.foreign_malloc(6 * MIB)
        program.add(line() - 1, "device", again, 6 * MIB)
        program.look("begun in mid-run", since=began)
        assert lib.foreign_free(first) == 0
        del kept[1:]
        torch.cuda.empty_cache()
        program.look("what was there before is freed", since=began)
    done = program.end(since=began)
    del more
    return done


def kernels(program: Program) -> dict[str, Any]:
    """Every launch has its line, and ran."""
    with program.profile:
        x = torch.ones(1000, 1000, device="cuda")
        for _ in range(20):
            y = (x * 2).relu()
        at = line() - 1
        other = torch.cuda.Stream()
        y.record_stream(other)
        with torch.cuda.stream(other):
            z = y + 1
        torch.cuda.synchronize()
        del y
        program.look("after kernels")
    done = program.end()
    driver = driver_events.read(driver_checks.dump(program.trace))
    here = sum(any(f[:2] == (FILE, at) for f in frames) for _, _, frames, _ in driver.launches)
    del z
    launched, ran = ({one[0] for one in rows} for rows in (driver.launches, driver.work))
    return {
        **done,
        "kernels": _core.analyze(str(program.trace))["kernels"],
        "here": here,
        "launches": len(driver.launches),
        "streams": len({one[1] for one in driver.launches}),
        "never_ran": len(launched - ran),
        "never_launched": len(ran - launched),
        "unnamed": sum(not name for _, name, kind in driver.work if kind == 1),
    }


PROGRAMS: dict[str, Callable[..., dict[str, Any]]] = {
    program.__name__: program for program in (everything, unharmed, midrun, kernels)
}


if __name__ == "__main__":
    name = sys.argv[1]
    print(json.dumps(PROGRAMS[name](Program(Path(sys.argv[2]), kernels=name == "kernels"))))
    leave()
