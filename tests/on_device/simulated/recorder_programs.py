"""python -m tests.on_device.simulated.recorder_programs NAME TRACE: one recording of CUDA, compared with PyTorch as it
goes.

Prints one JSON object, which test_recorder.py judges. What differs inside is an AssertionError.
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cuptimem
from cuptimem import _core
from tests.on_device.simulated import recorded, torch_memory
from tests.on_device.simulated.checks import same, same_list, same_map
from tests.on_device.simulated.ending import leave

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def look(trace: Path) -> dict[int, recorded.Device]:
    """What is recorded by now."""
    _core.capture_sync()
    devices, end = recorded.replay(_core.trace_dump(str(trace)))
    same("events lost", end[4], 0)
    return devices


def compare(trace: Path, label: str, *, devices: int = 1, expandable: bool = False) -> None:
    """Blocks with their sizes, sums and segments are those of PyTorch's snapshot."""
    ours = look(trace)
    for index in range(devices):
        mine, theirs = ours.get(index, recorded.Device()), torch_memory.device(index)
        where = f"{label}, cuda:{index}, "
        same(f"{where}unknown frees", mine.unknown_frees, 0)
        live = {address: (block.size, block.requested) for address, block in mine.live.items()}
        same_map(f"{where}blocks", live, theirs.live)
        same(f"{where}allocated", mine.allocated, torch.cuda.memory_allocated(index))
        same_map(f"{where}segments", mine.segments, {} if expandable else theirs.segments)


def compare_storages(trace: Path, label: str, index: int = 0) -> int:
    """Where PyTorch refuses snapshots: blocks are the storages that Python reaches."""
    gc.collect()
    mine = look(trace).get(index, recorded.Device())
    same(f"{label}, unknown frees", mine.unknown_frees, 0)
    live = {address: block.size for address, block in mine.live.items()}
    same_map(f"{label}, storages", live, torch_memory.storages().get(index, {}))
    same(f"{label}, segments", mine.segments, {})
    return len(live)


def numbers(prof: Any, name: str = "cuda:0") -> dict[str, Any]:
    """What the report says of a device, and whether it is consistent in itself."""
    report = prof.report
    device = report.device(name)
    same("the peak's contributors sum to it", sum(c.bytes for c in device.peak.contributors), device.peak.bytes)
    return {
        "start": device.start,
        "peak": device.peak.bytes,
        "end": device.end,
        "requested_peak": device.requested_peak,
        "segments": None if device.segments is None else [device.segments.count, device.segments.bytes],
        "check": None if device.check is None else [device.check.checked, device.check.differ],
        "reserved_peak": device.reserved_peak,
        "ooms": [[oom.requested, oom.allocated, oom.stack[0].function] for oom in device.ooms],
        "unknown_frees": report.lost.unknown_frees,
        "problems": report.environment.get("problems", "").splitlines(),
        "summary": str(report),
    }


def graph(device: str = "cuda") -> tuple[nn.Module, torch.Tensor]:
    """A model and a loss whose graph waits for its backward."""
    model = nn.Sequential(nn.Linear(301, 257, device=device), nn.ReLU(), nn.Linear(257, 1, device=device))
    return model, model(torch.ones(63, 301, device=device)).sum()


# -- a start in mid-run ------------------------------------------------------------------------------------------------


def midrun(trace: Path) -> dict[str, Any]:
    """Graph, workspace, a pending free and spare segments are there before; all is known, and goes as it should."""
    expandable = "expandable" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    model, loss = graph()
    other = torch.cuda.Stream()
    shared = torch.empty(3 * MIB + 1, dtype=torch.uint8, device="cuda")
    shared.record_stream(other)
    spare = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
    del shared, spare[0]
    before = torch.cuda.memory_allocated()
    with cuptimem.profile(trace) as prof:
        compare(trace, "at the start", expandable=expandable)
        loss.backward()
        compare(trace, "after backward", expandable=expandable)
        del loss, spare[:]
        compare(trace, "after the graph", expandable=expandable)
        torch.cuda.empty_cache()
        compare(trace, "after empty_cache", expandable=expandable)
        more = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
        compare(trace, "with more", expandable=expandable)
    found = numbers(prof)
    same("start", found["start"], before)
    same("end", found["end"], torch.cuda.memory_allocated())
    same("in segments", found["segments"][1], torch.cuda.memory_reserved())
    held = torch.cuda.memory_snapshot()  # of an expandable one its ranges
    segments = {(one["stream"], one["segment_type"]) for one in held} if expandable else held
    same("segments", found["segments"][0], len(segments))
    del model, more
    return found


def midrun_two_devices(trace: Path) -> dict[str, Any]:
    """Two devices, blocks by cudaMallocAsync or without caching: each is known where it is, and every free is."""
    kept = {index: graph(f"cuda:{index}") for index in (0, 1)}
    weights = {index: sum(p.numel() * 4 for p in kept[index][0].parameters()) for index in kept}
    with cuptimem.profile(trace) as prof:
        counts = [compare_storages(trace, "at the start", 1) if index else 0 for index in (0, 1)]
        made = [torch.ones(1000 + index, device=f"cuda:{index}") for index in (0, 1, 0)]
        with torch.cuda.device(1):
            made.append(torch.ones(2000, device="cuda"))
            del made[0]  # of device 0, while another one is current
        _, loss = kept.pop(1)
        live = look(trace)
        same("blocks of 4 * 1001 and 8000 bytes on 1", {4004, 8000} <= {b.size for b in live[1].live.values()}, True)
        same("one of 4000 bytes left on 0", [b.size for b in live[0].live.values()].count(4000), 1)
        del loss, _, made
        gc.collect()
        live = look(trace)
        same("alive on 1 at the end", live[1].allocated, 0)
        sizes = sum(block.size for block in live[0].live.values())
        assert sizes >= weights[0], sizes
        frees = {index: device.unknown_frees for index, device in live.items()}
        same("unknown frees", frees, {0: 0, 1: 0})
    found = numbers(prof, "cuda:1")
    same("end", found["end"], 0)
    return {**found, "counts": counts}


# -- without caching ---------------------------------------------------------------------------------------------------


def uncached(trace: Path) -> dict[str, Any]:
    """Every block is a cudaMalloc; also one that an extension asks for past `allocate`, and one that is refused."""
    with cuptimem.profile(trace) as prof:
        kept = [torch.ones(n, device="cuda") for n in (1, 1000, 300_000)]
        compare_storages(trace, "a few")
        raw = torch.cuda.caching_allocator_alloc(777)
        sizes = [block.size for block in look(trace)[0].live.values()]
        same("with a raw block", sorted(sizes), [4, 777, 4000, 1_200_000])
        torch.cuda.caching_allocator_delete(raw)
        compare_storages(trace, "without it")

        def too_much() -> None:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")

        with contextlib.suppress(RuntimeError):
            too_much()
        del kept[1]
        compare_storages(trace, "at the end")
    return numbers(prof)


def switched(trace: Path) -> dict[str, Any]:
    """Caching goes off and on: no block counts twice, and the totals still agree."""
    switch = torch.cuda.memory.caching_allocator_enable
    first = torch.ones(1000, device="cuda")
    with cuptimem.profile(trace) as prof:
        switch(False)
        direct = torch.ones(1001, device="cuda")
        switch(True)
        cached = torch.ones(1002, device="cuda")
        big = torch.ones(9_000_000, device="cuda")
        live = {block.size for block in look(trace)[0].live.values()}
        same("sizes", live, {4096, 4004, 36_000_256})
        switch(False)
        del first, cached, big
        again = torch.ones(1003, device="cuda")
        switch(True)
        torch.cuda.empty_cache()
        device = look(trace)[0]
        same("sizes at the end", sorted(b.size for b in device.live.values()), [4004, 4012])
        same("segments at the end", sorted(device.segments.values()), sorted(torch_memory.device(0).segments.values()))
        same("unknown frees", device.unknown_frees, 0)
        del direct, again
        same("alive at the end", look(trace)[0].allocated, 0)
    return numbers(prof)


# -- the other back ends -----------------------------------------------------------------------------------------------


def malloc_async(trace: Path) -> dict[str, Any]:
    """cudaMallocAsync: exact sizes, a block freed that another stream uses, one request refused."""
    with cuptimem.profile(trace) as prof:
        kept = [torch.ones(n, device="cuda") for n in (3, 1000, 300_000)]
        stream = torch.cuda.Stream()
        kept[1].record_stream(stream)
        raw = torch.cuda.caching_allocator_alloc(777)
        sizes = sorted(block.size for block in look(trace)[0].live.values())
        same("sizes", sizes, [12, 777, 4000, 1_200_000])
        torch.cuda.caching_allocator_delete(raw)
        del kept[1]
        compare_storages(trace, "after a free on another stream")

        def too_much() -> None:
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")

        with contextlib.suppress(torch.OutOfMemoryError):
            too_much()
        compare_storages(trace, "at the end")
    return numbers(prof)


PLUGGABLE = """
#include <stdlib.h>
void *give(size_t size, int device, void *stream) { return aligned_alloc(512, (size + 511) / 512 * 512); }
void take_back(void *block, size_t size, int device, void *stream) { free(block); }
"""


def pluggable(trace: Path) -> dict[str, Any]:
    """An allocator of the program's own tells nobody of its blocks: that is said, and nothing is made up."""
    source, library = trace.with_suffix(".c"), trace.with_suffix(".so")
    source.write_text(PLUGGABLE)
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, env=plain)
    own = torch.cuda.memory.CUDAPluggableAllocator(str(library), "give", "take_back")
    torch.cuda.memory.change_current_allocator(own)
    before = torch.ones(1000, device="cuda")
    with cuptimem.profile(trace) as prof:
        _core.sources_rescan()
        made = [torch.ones(1000, device="cuda") for _ in range(5)]
        same("recorded", look(trace), {})
    del before, made
    report = prof.report
    return {
        "problems": report.environment.get("problems", "").splitlines(),
        "devices": [device.name for device in report.devices],
        "summary": str(report),
    }


def foreign_pool(trace: Path) -> dict[str, Any]:
    """A pool with an allocator of its own: its blocks are known, its segments are not claimed, before and after."""
    source, library = trace.with_suffix(".c"), trace.with_suffix(".so")
    source.write_text(PLUGGABLE)
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True, env=plain)
    own = torch.cuda.memory.CUDAPluggableAllocator(str(library), "give", "take_back")
    pool = torch.cuda.MemPool(own.allocator())
    with torch.cuda.use_mem_pool(pool):
        before = torch.empty(1000, device="cuda")
    ordinary = torch.empty(5000, device="cuda")
    with cuptimem.profile(trace) as prof:
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        device, theirs = look(trace)[0], torch_memory.device(0)
        live = {address: (block.size, block.requested) for address, block in device.live.items()}
        same_map("blocks", live, theirs.live)
        same("segments in all", len(theirs.segments), 3)
        same("segments", [a <= ordinary.data_ptr() < a + n for a, n in device.segments.items()], [True])
    del before, inside, ordinary
    return numbers(prof)


# -- threads, profilers, graphs, refusals ------------------------------------------------------------------------------


def threads(trace: Path) -> dict[str, Any]:
    """Several threads on two devices, freeing each other's blocks: order and totals hold."""
    torch.cuda.init()
    with cuptimem.profile(trace) as prof:
        shelf: list[torch.Tensor] = []

        def work(number: int) -> None:
            kept = []
            for i in range(150):
                kept.append(torch.empty(100 + 37 * ((i * number) % 91), device=f"cuda:{(number + i) % 2}"))
                if i % 3 == 0:
                    shelf.append(kept.pop())
                if i % 5 == 0 and shelf:
                    del kept[: len(kept) // 2]
                    try:
                        shelf.pop()
                    except IndexError:
                        continue

        workers = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        compare(trace, "when all are done", devices=2)
        left = len(shelf)
        shelf.clear()
        compare(trace, "at the end", devices=2)
    found = [numbers(prof, f"cuda:{index}") for index in (0, 1)]
    return {**found[0], "checks": [one["check"] for one in found], "left": left}


def under_profiler(trace: Path) -> dict[str, Any]:
    """torch.profiler asks the allocators to report, too: nothing counts twice."""
    from torch.profiler import ProfilerActivity, profile

    model, loss = graph()
    with cuptimem.profile(trace) as prof:
        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=activities, profile_memory=True, with_stack=True) as other:
            loss.backward()
            x = torch.ones(1001, device="cuda")
            compare(trace, "inside")
            del loss
        compare(trace, "after it")
    told_too = sum(abs(row.self_device_memory_usage) for row in other.key_averages())
    del model, x
    return {**numbers(prof), "told_too": told_too}


def graphs(trace: Path) -> dict[str, Any]:
    """Private pools of CUDA graphs, of one captured before and one captured while recording."""
    x = torch.ones(1000, 100, device="cuda")

    def capture() -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            y = (x * 2).relu() @ x.T
        return captured, y

    first, kept = capture()
    with cuptimem.profile(trace) as prof:
        compare(trace, "with the first")
        second, also_kept = capture()
        compare(trace, "with the second")
        first.replay()
        second.replay()
        compare(trace, "after their replay")
        del first, kept
        gc.collect()
        torch.cuda.empty_cache()
        compare(trace, "without the first")
    del second, also_kept
    return numbers(prof)


def refused(trace: Path) -> dict[str, Any]:
    """Out of memory: cached segments are given back first, then the request is refused at its line."""
    with cuptimem.profile(trace) as prof:
        kept = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
        del kept[:2]
        fits = torch.empty(700 * MIB, dtype=torch.uint8, device="cuda")
        compare(trace, "once the cache was given back")
        allocated = torch.cuda.memory_allocated()

        def too_much() -> None:
            torch.empty(GIB, dtype=torch.uint8, device="cuda")

        for _ in range(2):
            with contextlib.suppress(torch.OutOfMemoryError):
                too_much()
        compare(trace, "after it")
        same("times", len(look(trace)[0].ooms), torch.cuda.memory_stats()["num_ooms"])
    del kept, fits
    return {**numbers(prof), "allocated": allocated}


# -- lines -------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(256, 1024), nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))  # forward line


def training(trace: Path) -> dict[str, Any]:
    """Steps, phases, lines and the join of backward, whose blocks are made in the device's own thread."""
    model = nn.Sequential(*[Block() for _ in range(3)]).cuda()
    with cuptimem.profile(trace) as prof:
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(6):
            loss = model(torch.ones(512, 256, device="cuda")).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        compare(trace, "at the end")
    report = prof.report
    events = _core.trace_dump(str(trace))
    device = report.device("cuda:0")
    backward = [c for c in device.peak.contributors if c.phase == "backward"]
    steps = [step for step in report.steps if step.device == "cuda:0"]
    return {
        **numbers(prof),
        "threads": len({event[2] for event in events if event[0] == "alloc" and event[7] == told_type()}),
        "steps": len(steps),
        "steady": steps[-1].end == steps[-2].end and steps[-1].peak == steps[-2].peak,
        "phases": sorted({c.phase for c in device.peak.contributors}),
        "backward_bytes": sum(c.bytes for c in backward),
        "backward_without_line": sum(c.bytes for c in backward if not c.stack),
        "unresolved": report.backward.unresolved,
        "operators": sorted({c.operator for c in backward if c.operator}),
        "suspects": len(report.leaks),
    }


def told_type() -> int:
    return recorded.CUDA


def leaking(trace: Path) -> dict[str, Any]:
    """A list that keeps a CUDA tensor of every step is a leak on cuda:0, of as many bytes a step as the block has."""
    kept = []
    with cuptimem.profile(trace) as prof:
        for _ in range(20):
            kept.append(torch.ones(1001, device="cuda"))
            prof.step()
    return {
        "leaks": [[leak.device, leak.bytes_per_step, leak.frame.function] for leak in prof.report.leaks if leak.frame]
    }


# -- windows, bounds, ends ---------------------------------------------------------------------------------------------


def windows(trace: Path) -> dict[str, Any]:
    """An inner window's own file says the same as the window in the capture's."""
    inner = trace.with_name("inner.cmem")
    with cuptimem.profile(trace):
        kept = [torch.ones(1001 + n, device="cuda") for n in range(10)]
        with cuptimem.profile(inner) as prof:
            kept.append(torch.ones(9_000_001, device="cuda"))
            del kept[3:6]
        live = numbers(prof)
    opened = cuptimem.open(inner).device("cuda:0")
    return {
        **live,
        "file": {
            "start": opened.start,
            "peak": opened.peak.bytes,
            "end": opened.end,
            "requested_peak": opened.requested_peak,
            "segments": None if opened.segments is None else [opened.segments.count, opened.segments.bytes],
        },
        "allocated": torch.cuda.memory_allocated(),
    }


def compacted(trace: Path) -> dict[str, Any]:
    """Past its bound the trace keeps what was asked for, the segments, and a check that does not cry wolf."""
    kept = []
    with cuptimem.profile(trace, max_size=MIB) as prof:
        for step in range(300):
            for n in range(1000):
                torch.empty(1 + (step * n) % 3001, device="cuda")
            kept.append(torch.ones(101, device="cuda"))
            prof.step()
        peak = torch.cuda.max_memory_allocated()
        compare_sums(torch.cuda.memory_allocated(), prof)
    found = numbers(prof)
    same("peak", found["peak"], peak)
    return {**found, "compacted": prof.report.compacted is not None, "kept": len(kept)}


def compare_sums(allocated: int, prof: Any) -> None:
    same("alive now", prof.report.device("cuda:0").end, allocated)


def killed(trace: Path) -> dict[str, Any]:
    """SIGKILL: the last line says what was alive then."""
    prof = cuptimem.profile(trace)
    prof.__enter__()
    kept = [torch.ones(1001 + n, device="cuda") for n in range(500)]
    live = {address: list(pair) for address, pair in torch_memory.device(0).live.items()}
    print(json.dumps({"live": live, "segments": torch_memory.device(0).segments}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {"never": len(kept)}


def removed(trace: Path) -> dict[str, Any]:
    """Everything is given back at the end, and a second recording begins where the first had not looked."""
    kept = []
    rows = []
    for number in range(2):
        path = trace.with_name(f"{number}.cmem")
        with cuptimem.profile(path) as prof:
            kept.append(torch.ones(1001, device="cuda"))
            compare(path, f"recording {number}")
            rows.append(sum(row[4] for row in _core.sources_rows() if row[0] == "cuda"))
        rows.append(sum(row[4] for row in _core.sources_rows() if row[0] == "cuda"))
        kept.append(torch.ones(1002, device="cuda"))
        same("end", numbers(prof)["end"], torch.cuda.memory_allocated() - 4096 - 512 + 512)
    return {"rows": rows}


def history(trace: Path) -> dict[str, Any]:
    """The order of everything, frees and segments included, is that of PyTorch's own recorder."""
    torch.cuda.memory._record_memory_history("all", context=None)
    with cuptimem.profile(trace) as prof:
        model, loss = graph()
        loss.backward()
        del loss, model
        torch.cuda.empty_cache()
        ours, theirs = look(trace)[0], torch_memory.device(0)
        same_list("history", ours.history, theirs.history)
        same_list("reserved", [r for _, r in ours.reserved], [r for _, r in theirs.reserved])
    return {**numbers(prof), "events": len(theirs.history)}


def host_reads(trace: Path) -> dict[str, Any]:
    """Values that no kernel computed, where Python reads them."""

    def read(x: torch.Tensor) -> float:
        return float((x * 2).sum().item())

    with cuptimem.profile(trace) as prof:
        x = torch.ones(1000, device="cuda")
        for _ in range(7):
            read(x)
        uploaded = torch.arange(100).cuda()
        assert uploaded.cpu().tolist() == list(range(100)), "what was uploaded comes back"
        uploaded += 1  # no kernel runs: the read below is wrong, and the report says that it may be
        assert uploaded.cpu().tolist() == list(range(100))
    reads = prof.report.host_reads
    return {"reads": [[r.device, r.count, r.bytes, r.frame.function if r.frame else None, r.written] for r in reads]}


def hooks_without_device(trace: Path) -> dict[str, Any]:
    """A recording of a program that has CUDA's allocator and never uses it says nothing of CUDA."""
    with cuptimem.profile(trace) as prof:
        kept = torch.ones(100)
    del kept
    return {
        "devices": [device.name for device in prof.report.devices],
        "problems": prof.report.environment.get("problems", ""),
        "reads": len(prof.report.host_reads),
        "hook": ctypes.CDLL(None).cm_sim_set_read_hook is not None,
    }


def operators(trace: Path) -> dict[str, Any]:
    with cuptimem.profile(trace, operators=True) as prof:
        x = torch.randn(1000, 1000, device="cuda", requires_grad=True)
        (x @ x).relu().sum().backward()
    rows = prof.report.contents("allocated", "cuda").contributors
    made = [c for c in rows if c.category != "workspace"]
    return {"names": sorted({(c.phase == "backward", c.operator) for c in made})}


PROGRAMS: dict[str, Callable[[Path], dict[str, Any]]] = {
    program.__name__: program
    for program in (
        *(midrun, midrun_two_devices, uncached, switched, malloc_async, pluggable, foreign_pool, threads),
        *(under_profiler, graphs, refused, training, leaking, windows, compacted, killed, removed, history, host_reads),
        *(hooks_without_device, operators),
    )
}


if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](Path(sys.argv[2]))))
    leave()
