"""The driver level as _core.analyze returns it, by hand: "PyTorch says 60 GB, nvidia-smi says 96 GB"."""

from pathlib import Path
from typing import Any

from tests.tools.cli import sample

MIB, GIB = 1 << 20, 1 << 30

SOURCE = """\
import ctypes
import torch
import torch.distributed as dist


def train(model, x):
    y = model(x)
    dist.all_reduce(y)
    torch.mm(y, y)
    ctypes.CDLL("libmine.so").take(1 << 30)
    pinned = y.cpu().pin_memory()
    return y
"""

MODEL, REDUCE, MULTIPLY, TAKE, PIN = 20, 21, 22, 23, 24  # stack ids

STALL = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"


def line(
    kind: str, library: str, stack: int, size: int, count: int, torch: bool = False, backward: bool = False
) -> dict[str, Any]:
    return {
        "kind": kind,
        "library": library,
        "stack": stack,
        "bytes": size,
        "count": count,
        "torch": torch,
        "backward": backward,
    }


NCCL = line("physical", "libnccl.so.2", REDUCE, 8 * GIB, 4)
LIBRARIES = [
    NCCL,
    line("device", "libmine.so", TAKE, GIB, 1),
    line("device", "libcublas.so.13", MULTIPLY, 32 * MIB, 2),
    line("async", "", 0, 3 * MIB, 3),
    line("device", "libcublas.so.13", 1, MIB, 1),
]


def ledger(**changes: Any) -> dict[str, Any]:
    """96 GiB used. The residual makes it add up, unless it is among the changes."""
    row: dict[str, Any] = {
        "device": "cuda:0",
        "time_ns": 12_000_000_000,
        "step": 1,
        "what": "peak",
        "quiet": True,
        "used": 96 * GIB,
        "total": 141 * GIB,
        "own": 94 * GIB,
        "others": 2 * GIB,
        "driver_reserved": 700 * MIB,
        "host": None,
        "page_cache": None,
        "tensors": 60 * GIB - 4096,
        "rounding": 4096,
        "cached": 22 * GIB,
        "driver": LIBRARIES,
        "driver_rounding": 0,
        "pool_slack": 29 * MIB,
        "pool_short": 0,
        "context": 512 * MIB,
        "context_measured": True,
    }
    row |= changes
    known = ["tensors", "rounding", "cached", "driver_rounding", "pool_slack"]
    sum_of_lines = sum(row[key] for key in known) + sum(one["bytes"] for one in row["driver"])
    sum_of_lines += sum(row[key] or 0 for key in ("context", "others", "host", "page_cache"))
    return {"residual": row["used"] - sum_of_lines, **row}


def driver(**changes: Any) -> dict[str, Any]:
    return {
        "mode": "callbacks",
        "reason": "",
        "cupti": "libcupti.so.13 13.0.85",
        "allocations": 1204,
        "frees": 1100,
        "unknown_frees": 0,
        "failed_frees": 0,
        "replaced": 0,
        "record_check": {"records": 2304, "matched": 2304, "missing": 0, "differ": 0, "alone": 0, "dropped": 0},
        "devices": [
            {
                "device": "cuda:0",
                "bytes": 82 * GIB,
                "peak": 91 * GIB,
                "live": [line("device", "libc10_cuda.so", MODEL, 82 * GIB, 90, True), *LIBRARIES],
            }
        ],
        "host": {
            "device": "host",
            "bytes": 3 * GIB,
            "peak": 4 * GIB,
            "live": [
                line("host", "libc10_cuda.so", PIN, 2 * GIB, 7, True),
                line("registered", "libnccl.so.2", REDUCE, GIB, 1),
            ],
        },
    } | changes


PLAIN = {"expandable": False, "addresses": None, "unmapped": 0, "ranges_total": 1, "ranges": []}


def fragmentation(**changes: Any) -> dict[str, Any]:
    nearly_full = {"size": 20 * MIB, "allocated": 19 * MIB, "largest_free": MIB, **PLAIN}
    return {
        "device": "cuda:0",
        "what": "oom",
        "time_ns": 12_500_000_000,
        "reserved": 10 * GIB,
        "allocated": 6 * GIB,
        "requested": 6 * GIB - 4096,
        "largest_free_block": GIB,
        "free_on_device": 512 * MIB,
        "largest_request": GIB,
        "asked": 2 * GIB,
        "too_small": 4 * GIB,
        "empty_cache_returns": 512 * MIB,
        "expandable_returns": 3 * GIB,
        "segments": [
            {
                "address": 0x7F0000000000,
                "size": 2 * GIB,
                "allocated": 2 * MIB,
                "largest_free": GIB,
                **PLAIN,
                "pins": [
                    {"stack": MODEL, "bytes": MIB, "count": 2, "pinned": 2 * GIB},
                    {"stack": MULTIPLY, "bytes": MIB, "count": 1, "pinned": 2 * GIB},
                ],
            },
            {"address": 0x7F1000000000, **nearly_full, "pins": []},
            {"address": 0x7F2000000000, **nearly_full, "pins": []},
        ],
        "segments_total": 7,
        "pins": [
            {"stack": MODEL, "bytes": 3 * MIB, "count": 5, "pinned": 4 * GIB, "segments": 3},
            {"stack": MULTIPLY, "bytes": MIB, "count": 1, "pinned": 2 * GIB, "segments": 1},
            {"stack": 0, "bytes": MIB, "count": 1, "pinned": 20 * MIB, "segments": 1},
        ],
    } | changes


def kernels(**changes: Any) -> dict[str, Any]:
    return {
        "launches": 1500,
        "ran": 1499,
        "dropped": 1,
        "unrecorded": 0,
        "unlaunched": 0,
        "unjudged": 0,
        "wait_least_ns": 1_000_000,
        "ns": 40_000_000,
        "names_total": 2,
        "names": [
            {"name": STALL, "count": 1000, "ns": 30_000_000},
            {"name": "ampere_sgemm_128x64_tn", "count": 499, "ns": 10_000_000},
        ],
        "early": [{"stack": MODEL, "bytes": GIB, "count": 1, "wait_ns": 40_000_000, "kernel": STALL}],
        "late": [{"stack": REDUCE, "bytes": MIB, "count": 12, "wait_ns": 2_500_000_000, "kernel": ""}],
        "deferred_frees": [{"stack": MULTIPLY, "bytes": 2 * MIB, "count": 3, "stream": 0x5581}],
    } | changes


def analysis(folder: Path, **changes: Any) -> dict[str, Any]:
    """A training on cuda:0 and the CPU whose driver level was recorded; changes are of the top level."""
    raw = sample.analysis(folder)
    script = folder / "big.py"
    script.write_text(SOURCE)
    main = (str(script), "<module>", 20, 20, 0, 12, None, 0, sample.source_line(SOURCE, 20))
    frames = {MODEL: 7, REDUCE: 8, MULTIPLY: 9, TAKE: 10, PIN: 11}
    for stack, number in frames.items():
        raw["stacks"][stack] = [
            (str(script), "train", number, number, 4, 40, None, 0, sample.source_line(SOURCE, number)),
            main,
        ]
    cuda = {
        **raw["devices"][0],
        "device": "cuda:0",
        "peak": 60 * GIB,
        "requested_peak": 60 * GIB - 4096,
        "above": (0, 0, None),
        "kept": 0,
        "reserved_peak": 82 * GIB,
        "contributors": [(60 * GIB, 300, MODEL, MODEL, "forward", None, *sample.UNKNOWN)],
    }
    raw["devices"] = [cuda, *raw["devices"]]
    raw["duration_ns"] = 15_000_000_000
    raw["driver"] = driver()
    raw["ledger"] = [ledger(), ledger(what="end", used=95 * GIB, cached=21 * GIB, time_ns=14_000_000_000, step=None)]
    raw["device_timeline"] = [
        {"device": "cuda:0", "points": [(0, None, 0, 0, 0), (12_000_000_000, 96 * GIB, 91 * GIB, 82, 60)]}
    ]
    raw["fragmentation"] = [
        fragmentation(what="peak", asked=None, free_on_device=None, largest_request=None),
        fragmentation(),
        fragmentation(what="end", asked=None),
    ]
    raw["kernels"] = kernels()
    return raw | changes
