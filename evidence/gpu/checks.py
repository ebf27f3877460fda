"""What CUPTI's documentation leaves open: each question with what is expected, and what would follow if it is not so.

judge returns "" where the facts are as expected, else what differs. That is no error: the driver level depends on none
of these, but documents and the simulated device say what is expected here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
GENERATIONS = Path(__file__).resolve().parents[2] / "cudasim" / "tests" / "cupti" / "generations.txt"


@dataclass(frozen=True)
class Check:
    """One process. number: of the question in the project's list. name: of a check of cupti_facts.c, or of a program
    of with_torch.py."""

    number: int
    name: str
    asks: str
    expects: str
    judge: Callable[[Facts], str]
    tells: Callable[[Facts], str]
    torch: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    @property
    def key(self) -> str:
        return self.label or self.name


def differs(what: str, found: object, expected: object) -> str:
    return "" if found == expected else f"{what}: {found}, expected {expected}"


def first(*differences: str) -> str:
    return next((text for text in differences if text), "")


def _virtual(facts: Facts) -> str:
    return first(
        differs("records", facts["records"], 0),
        differs("callbacks", facts["callbacks"], [547, 549, 551, 552, 550, 548]),
    )


NOT_SUPPORTED = 801
NESTED = {
    "cudaMalloc": ["cuMemAlloc_v2"],
    "cudaFree": ["cuMemFree_v2"],
    "cudaMallocAsync": ["cuMemAllocAsync"],
    "cudaFreeAsync": ["cuMemFreeAsync"],
    "cudaMallocManaged": ["cuMemAllocManaged"],
    "cudaMallocHost": ["cuMemHostAlloc"],
    "cudaFreeHost": ["cuMemFreeHost"],
    "cudaHostRegister": ["cuMemHostRegister_v2"],
    "cudaHostUnregister": ["cuMemHostUnregister"],
    "cudaMallocArray": ["cuArray3DCreate_v2"],
    "cudaFreeArray": ["cuArrayDestroy"],
    "cudaMalloc3D": ["cuMemAllocPitch_v2"],
    "cudaMallocPitch": ["cuMemAllocPitch_v2"],
}


def _nested(facts: Facts) -> str:
    for domain in ("driver_domain", "both_domains"):
        for name, driver in NESTED.items():
            if facts[domain][name].get("error") == NOT_SUPPORTED:  # the simulated device, of some
                continue
            if text := differs(f"{domain}, {name}", facts[domain][name]["driver"], driver):
                return text
    apart = [name for name, found in facts["both_domains"].items() if not found.get("same_id", True)]
    return differs("calls with an id of their own", apart, [])


def _correlation(facts: Facts) -> str:
    return first(
        *(differs(f"{kind}, {what}", facts[kind][what], n)
          for kind, count in (("memory", 20), ("kernels", 10))
          for what, n in (("records", count), ("zero", 0), ("matched", count))),
    )  # fmt: skip


def lengths(version: int) -> dict[str, int]:
    """By kind, of the release that says it is of that version; {} where none does."""
    for row in GENERATIONS.read_text().splitlines():
        if row.startswith("#"):
            continue
        _, says, *sizes = row.split()
        # 13.0, 13.1 and later count updates in the last two digits.
        if int(says) == version or (version >= 130000 and int(says) // 100 == version // 100):
            return {kind: int(size) for kind, size in (one.split(":") for one in sizes)}
    return {}


def _lengths(facts: Facts) -> str:
    known = lengths(facts["version"])
    if not known:
        return f"no release of version {facts['version']} is known"
    return differs("lengths", facts["lengths"], {kind: known[kind] for kind in facts["lengths"]})


def _ends(facts: Facts) -> str:
    return first(
        differs("late callbacks", facts["late"], 0),
        differs("inside after unsubscribing", facts["inside_after_return"], 0),
        differs("child", facts["child"], 0),
    )


def _level(facts: Facts) -> str:
    return first(
        differs("mode", facts["mode"], "callbacks"),
        differs("frees of the unknown", facts["unknown_frees"], 0),
        differs("ledgers", len(facts["ledger"]), 1),
    )


def _level_in_units(facts: Facts) -> str:
    """PyTorch's segments fill the units in which the driver takes memory: nothing may be left over."""
    return first(_level(facts), *(differs("residual", row["residual"], 0) for row in facts["ledger"]))


def _ours_first(facts: Facts) -> str:
    return first(
        differs("kernels that torch.profiler saw", facts["kernels_inside"] > 0 and facts["kernels_after"] > 0, True),
        differs("frees of the unknown", facts["unknown_frees"], 0),
    )


def _theirs_first(facts: Facts) -> str:
    return first(
        differs("kernels that torch.profiler saw", facts["kernels_before"] > 0 and facts["kernels_around"] > 0, True),
        differs("frees of the unknown", facts["unknown_frees"], 0),
    )


def ns(number: float) -> str:
    return f"{number:,.0f} ns"


def _cost(facts: Facts) -> str:
    pair, launch = facts["pair_ns"], facts["launch_ns"]
    return (
        f"a pair {ns(pair['bare'])}, with callbacks +{ns(pair['callbacks'] - pair['bare'])}, with records "
        f"+{ns(pair['records'] - pair['bare'])}; a launch {ns(launch['bare'])}, with callbacks "
        f"+{ns(launch['callbacks'] - launch['bare'])}, with records +{ns(launch['records'] - launch['bare'])}; "
        f"a flush {ns(facts['flush_ns'])}"
    )


def _ledger(facts: Facts) -> str:
    told = f"{facts['mode']}, {facts['allocations']} allocations, libraries {', '.join(facts['libraries']) or 'none'}"
    for row in facts["ledger"]:
        told += f"; used {row['used']:,}, context {row['context']:,}, residual {row['residual']:,}"
    return f"{told}; graph: {facts['graph']}"


def _coexist(facts: Facts) -> str:
    seen = ", ".join(f"{key.replace('_', ' ')} {n}" for key, n in facts.items() if key.startswith("kernels"))
    return f"{facts['mode']}{': ' + facts['reason'] if facts['reason'] else ''}; {seen}"


def _back_end(label: str, settings: str, environment: Mapping[str, str]) -> Check:
    fills = label in ("native", "expandable")
    return Check(
        8,
        "back_end",
        f"a training under {settings}",
        f"every free known{', residual 0' if fills else ''}",
        _level_in_units if fills else _level,
        _ledger,
        torch=True,
        environment=environment,
        label=f"back end {label}",
    )


CONF = "PYTORCH_CUDA_ALLOC_CONF"
CHECKS = (
    Check(
        1,
        "virtual",
        "cuMemCreate, Map, Unmap, Release with MEMORY2 on: any record?",
        "none; a callback for each call",
        _virtual,
        lambda f: f"{f['records']} records, kinds {f['memory_kinds']}, callbacks {f['callbacks']}",
    ),
    Check(
        2,
        "nested",
        "which driver calls do runtime calls make, under which id?",
        "the one of its name, under the runtime call's id",
        _nested,
        lambda f: "; ".join(
            f"{name}: {' '.join(v.get('driver', ['refused'])) or 'none'}" for name, v in f["both_domains"].items()
        ),
    ),
    Check(
        3,
        "correlation",
        "records' ids with API kinds off and callbacks on",
        "not zero, the callback's",
        _correlation,
        lambda f: "; ".join(
            f"{k} {f[k]['matched']} of {f[k]['records']}, zero {f[k]['zero']}" for k in ("memory", "kernels")
        ),
    ),
    Check(
        4,
        "kinds",
        "RUNTIME and DRIVER both on: driver records below runtime's?",
        "none",
        lambda f: differs("nested records", f["nested"], 0),
        lambda f: f"runtime {f['runtime']}, driver {f['driver']}, nested {f['nested']}",
    ),
    Check(5, "cost", "cost of callbacks, records, flushes", "measured only", lambda f: "", _cost),
    Check(
        6,
        "ours_first",
        "our subscription first, then torch.profiler",
        "it sees its kernels; we go on",
        _ours_first,
        _coexist,
        torch=True,
    ),
    Check(
        6,
        "theirs_first",
        "torch.profiler first, then ours",
        "it sees its kernels; we record",
        _theirs_first,
        _coexist,
        torch=True,
    ),
    Check(
        7,
        "own",
        "CUPTI's own device memory; do callbacks tell of it?",
        "no callback",
        lambda f: differs("callbacks", f["callbacks"], 0),
        lambda f: f"{f['all']:,} bytes in all ({f['subscribed']:,} subscribed, {f['first_launch']:,} first launch)",
    ),
    _back_end("native", "the native allocator", {}),
    _back_end("expandable", "expandable segments", {CONF: "expandable_segments:True"}),
    _back_end("async", "cudaMallocAsync", {CONF: "backend:cudaMallocAsync"}),
    _back_end("uncached", "no caching", {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
    Check(
        9,
        "lengths",
        "lengths of records, with a subscriber",
        "those of cudasim/tests/cupti/generations.txt",
        _lengths,
        lambda f: f"version {f['version']}, by {f['asked']}: " + " ".join(f"{k}:{n}" for k, n in f["lengths"].items()),
    ),
    Check(
        10,
        "ends",
        "unsubscribing under a callback, fork, leaving subscribed",
        "no callback after unsubscribing has returned; the child ends",
        _ends,
        lambda f: f"late {f['late']}, inside {f['inside_after_return']} of {f['rounds']}, child {f['child']}",
    ),
)


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("CUPTIMEM", "PYTORCH_"))}
