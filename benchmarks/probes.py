"""Measurements that need a process of their own: python -m benchmarks.probes NAME ARGUMENTS... prints JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.simulated import entry_points as entry_points  # called by its name, see main
from benchmarks.synthetic import write_synthetic


def resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS in /proc/self/status")


def size(events: int) -> dict[str, Any]:
    """Trains (GPT-style, small) until that many allocations and frees are recorded: bytes of file for each."""
    import cuptimem
    from benchmarks.workloads import small_step
    from cuptimem import _core

    run = small_step()
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        path = os.path.join(folder, "run.cmem")
        with cuptimem.profile(path) as prof:
            while True:
                run(50)
                if _core.capture_counts()["events"] > 1.6 * events:  # node events are counted too
                    break
        report = prof.report
        recorded = sum(d.allocations + d.frees for d in report.devices)
        return {
            "bytes": os.path.getsize(path),
            "events": report.events,
            "recorded": recorded,
            "lost": report.lost.events,
        }


def record(mode: str, folder: str, steps: int) -> dict[str, Any]:
    """Trains the GPT workload under a recorder: what it wrote, how long its stop took, and for torch.profiler, which
    reports in the process that trained, how long that takes."""
    from benchmarks.workloads import gpt

    run = gpt()
    run(2)
    reports: dict[str, float] = {}
    allocations = 0
    if mode == "cuptimem":
        import cuptimem

        file = os.path.join(folder, "run.cmem")
        ours = cuptimem.profile(file)
        with ours:
            run(steps)
            end = time.perf_counter()
        stop = time.perf_counter() - end
        allocations = ours.report.allocations
    elif mode == "memray":
        import memray

        file = os.path.join(folder, "run.bin")
        with memray.Tracker(file):
            run(steps)
            end = time.perf_counter()
        stop = time.perf_counter() - end
    elif mode == "torch.profiler":
        import torch

        file = os.path.join(folder, f"{os.getpid()}.json")
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True, with_stack=True) as theirs:
            run(steps)
            end = time.perf_counter()
        stop = time.perf_counter() - end
        begin = time.perf_counter()
        text = theirs.key_averages(group_by_stack_n=5).table(sort_by="self_cpu_memory_usage", row_limit=20)
        reports["table"] = time.perf_counter() - begin
        if "CPU Mem" not in text:
            raise RuntimeError("torch.profiler's table has no memory columns")
        begin = time.perf_counter()
        theirs.export_chrome_trace(file)
        reports["export"] = time.perf_counter() - begin
    else:
        raise SystemExit(f"unknown recorder {mode}")
    written = os.path.getsize(file)
    if mode == "torch.profiler":
        os.unlink(file)
    return {"file": file, "bytes": written, "stop_s": stop, "reports": reports, "allocations": allocations}


def synthetic(path: str, events: int, on: str) -> dict[str, Any]:
    return write_synthetic(path, events, on=on)


def windows(path: str, events: int, count: int) -> dict[str, Any]:
    """So many windows of a trace, one after the other, against one reading of all of it."""
    from cuptimem import _core

    written = write_synthetic(path, events, windows=count)
    once = _core.trace(path)
    begin = time.process_time()
    whole = _core.analyze(once)
    between = time.process_time()
    trace = _core.trace(path)
    allocations = sum(_core.analyze(trace, window=2 + i)["allocations"] for i in range(count))
    end = time.process_time()
    return {
        "whole_s": between - begin,
        "windows_s": end - between,
        "events": written["events"],
        "allocations": [written["allocations"], whole["allocations"], allocations],
        "decoded": _core.trace_decoded(trace),
        "decoded_once": _core.trace_decoded(once),
    }


def tensorboard(folder: str, events: int) -> dict[str, Any]:
    """What the handler does at the end of a cycle of so many events: the report, the scalars, the page's file."""
    import cuptimem
    from cuptimem.tensorboard import handler

    handler.require_tensorboard()  # at the handler's creation
    path = os.path.join(folder, "a.cmem")
    written = write_synthetic(path, events)
    begin = time.process_time()
    handler.write(cuptimem.open(path), os.path.join(folder, "logs"), "worker", "cycle", 0)
    took = time.process_time() - begin
    files = [os.path.join(place, name) for place, _, names in os.walk(os.path.join(folder, "logs")) for name in names]
    return {"s": took, "steps": written["steps"], "bytes": sum(map(os.path.getsize, files))}


def analyse(path: str) -> dict[str, Any]:
    """Opens a trace in a fresh process: everything that a report says."""
    import cuptimem

    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    report = cuptimem.open(path)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": seconds,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_mib": after.ru_maxrss / 1024,
        "added_mib": (after.ru_maxrss - before.ru_maxrss) / 1024,
        "events": report.events,
        "peak_bytes": report.peak.bytes,
        "steps": len(report.steps),
        "segments": report.devices[0].segments.count if report.devices[0].segments else 0,
        "residuals": [ledger.residual for ledger in report.ledgers],
    }


def resident(threads: int, record: int) -> dict[str, Any]:
    """Threads that allocate all the time and keep 100 blocks each, with or without a recording."""
    import torch

    import cuptimem
    from cuptimem import _core

    torch.set_num_threads(1)
    ready = threading.Barrier(threads + 1)
    stop = threading.Event()

    def depth(n: int, size: int) -> torch.Tensor:
        return torch.empty(size) if n == 0 else depth(n - 1, size)

    def work() -> None:
        kept = [torch.empty(16) for _ in range(100)]
        for i in range(3000):
            kept[i % 100] = depth(i % 20, 16)
        ready.wait()
        stop.wait()

    def run() -> tuple[int, dict[str, int]]:
        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        ready.wait()
        counts = _core.capture_counts() if record else {}
        kib = resident_kib()
        stop.set()
        for worker in workers:
            worker.join()
        return kib, dict(counts)

    begin = resident_kib()
    with tempfile.TemporaryDirectory(prefix="cuptimem-bench-") as folder:
        if record:
            with cuptimem.profile(os.path.join(folder, "run.cmem")):
                kib, counts = run()
        else:
            kib, counts = run()
    return {
        "added_mib": (kib - begin) / 1024,
        "live": threads * 100,
        "own_mib": counts.get("profiler_bytes", 0) / 2**20,
    }


def stopped(times: int, threads: int) -> dict[str, Any]:
    """The micro-loop in a process that has recorded and stopped (times > 0) or never has: ns for each pair.

    threads: how many have started and ended before. The C library's allocator takes shortcuts, worth some 40 ns a pair,
    in a process that never had a second thread; any training that uses a data loader or a GPU has had one.
    """
    import statistics

    import cuptimem
    from benchmarks.workloads import micro

    run = micro()
    run(5)
    for _ in range(threads):
        thread = threading.Thread(target=run, args=(1,))
        thread.start()
        thread.join()
    for _ in range(times):
        with cuptimem.profile():
            run(1)
    return {"ns": statistics.median(run(25)) * 1e9}


def main() -> None:
    arguments = [int(a) if a.isdigit() else a for a in sys.argv[2:]]
    print(json.dumps(globals()[sys.argv[1]](*arguments)))
    from cuptimem.record import backward_threads  # now: until here a process has of it what its measurement is about

    backward_threads.wait()


if __name__ == "__main__":
    main()
