"""Trains under torch.profiler, several times, and prints one line of JSON: what it recorded. For test_kineto.py."""

import json
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tests.on_device.simulated.ending import leave

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def train(steps: int = 1) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.ones(32, 64).pin_memory().cuda(non_blocking=True)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def correlation(event: dict[str, Any]) -> int:
    return int(event["args"]["correlation"])


def facts(profiler: Any, trace: Path) -> dict[str, Any]:
    """Counts of what is in a profile, and of what is wrong with it."""
    profiler.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    copies = [event for event in events if event.get("cat") == "gpu_memcpy"]
    calls = {correlation(event): event for event in events if event.get("cat") == "cuda_runtime"}
    operators = {event["args"]["External id"] for event in events if event.get("cat") == "cpu_op"}
    streams: dict[Any, float] = {}
    disorder = 0
    for event in sorted(kernels + copies, key=lambda event: float(event["ts"])):
        key = (event["pid"], event["tid"])
        disorder += float(event["ts"]) < streams.get(key, 0) - 0.0015  # microseconds, written with three digits
        streams[key] = float(event["ts"]) + float(event["dur"])
    averages = profiler.key_averages()
    return {
        "kernels": len(kernels),
        "names": len({event["name"] for event in kernels}),
        "unnamed": sum(not event["name"] or "kernel" not in event["name"].lower() for event in kernels),
        "instant": sum(float(event["dur"]) <= 0 for event in kernels),
        "without call": sum(correlation(event) not in calls for event in kernels),
        "before call": sum(
            float(event["ts"]) < float(calls[correlation(event)]["ts"])
            for event in kernels
            if correlation(event) in calls
        ),
        "without operator": sum(event["args"].get("External id") not in operators for event in kernels + copies),
        "disorder": disorder,
        "copies": Counter(event["name"] for event in copies),
        "calls": Counter(event["name"] for event in calls.values()),
        "flows": [sum(event.get("cat") == "ac2g" and event["ph"] == phase for event in events) for phase in "sf"],
        "memory": sum(
            event.get("name") == "[memory]" and event["args"]["Device Type"] == 1 and event["args"]["Bytes"] > 0
            for event in events
        ),
        "device time": sum(average.self_device_time_total for average in averages) > 0,
        "device memory": sum(average.self_device_memory_usage for average in averages if average.key == "aten::empty")
        > 0,
        "finished": [event.get("name") for event in events].count("Optimizer.step#SGD.step"),
    }


def main(folder: Path) -> None:
    warnings.simplefilter("error")
    found: dict[str, Any] = {}
    train()
    for name in ("first", "second"):
        with profile(activities=BOTH, profile_memory=True, record_shapes=True, acc_events=True) as profiler:
            train()
            torch.cuda.synchronize()
        found[name] = facts(profiler, folder / f"{name}.json")

    cycles: list[Any] = []
    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda ready: cycles.append(facts(ready, folder / f"cycle{len(cycles)}.json")),
        acc_events=True,
    ) as profiler:
        for _ in range(8):
            train()
            torch.cuda.synchronize()
            profiler.step()
    found["cycles"] = cycles

    with profile(activities=BOTH, acc_events=True) as profiler:
        threads = [threading.Thread(target=train, args=(3,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        torch.cuda.synchronize()
    found["threads"] = facts(profiler, folder / "threads.json")
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave()
