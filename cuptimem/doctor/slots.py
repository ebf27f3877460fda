"""What is intercepted of PyTorch, and what a slot that is not there costs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from cuptimem.doctor.checks import SOURCES, Check, Slot, State


def readable(symbol: str) -> str:
    """A mangled name without its arguments: _ZN3c108alloc_cpuEm is c10::alloc_cpu."""
    start = symbol.find("N")
    if start < 0 or not symbol.startswith(("_ZN", "St")):
        return symbol
    parts: list[str] = []
    rest = symbol[start + 1 :].removeprefix("K")
    while match := re.match(r"(\d+)", rest):
        length, rest = int(match[1]), rest[match.end() :]
        parts.append(rest[:length])
        rest = rest[length:]
    if parts and re.match(r"D[012]", rest):
        parts.append("~" + parts[-1])
    name = "::".join(parts)
    if not name:
        return symbol
    if symbol.startswith("St23_Sp_counted_ptr_inplace"):
        return f"std::make_shared<{name}>"
    return f"std::shared_ptr<{name}>" if symbol.startswith("St") else name


REINSTALL = "install an official wheel: pip install --force-reinstall torch"
AT_BACKWARD = "bytes of backward stand at the line that called backward()"
_COSTS: dict[str, tuple[str, State, str]] = {  # meaning (its beginning) -> name, state without it, cost
    "CPU allocation": ("CPU allocations", "failed", "no CPU tensor is recorded"),
    "CPU free": ("CPU frees", "failed", "CPU tensors seem to live for ever"),
    "CPU out of memory": ("CPU out of memory", "warning", "a CPU allocation that fails leaves no mark"),
    "device allocation": ("GPU, shared, mapped", "warning", "GPU tensors and shared CPU tensors are not recorded"),
    "device out of memory": ("GPU out of memory", "warning", "a GPU that runs out of memory leaves no mark"),
    "autograd node created": ("nodes created", "warning", AT_BACKWARD),
    "autograd node run": ("nodes run", "warning", AT_BACKWARD),
    "autograd node destroyed": ("nodes destroyed", "warning", "nodes are not counted: a graph that grows is not found"),
}


CUDA_COSTS: dict[str, tuple[str, State, str]] = {  # the same, where this PyTorch can use CUDA
    "memory that the allocator takes": ("CUDA segments taken", "warning", "segments, and blocks that are not cached"),
    "memory that it gives back": ("CUDA segments given back", "warning", "segments and uncached blocks never end"),
    "blocks of the cudaMallocAsync": ("cudaMallocAsync", "warning", "its blocks are not recorded"),
    "their frees": ("cudaFreeAsync", "warning", "blocks of cudaMallocAsync seem to live for ever"),
    "sizes as asked for": ("CUDA requested sizes", "warning", "how much of a block was asked for is not known"),
}


def slot_checks(slots: Sequence[Slot], costs: Mapping[str, tuple[str, State, str]] = _COSTS) -> Iterator[Check]:
    """A line per thing that is intercepted. Versions differ in how nodes are destroyed: any way will do."""
    for start, (name, state, cost) in costs.items():
        found = [slot for slot in slots if slot.meaning.startswith(start)]
        patched = [slot for slot in found if slot.patched]
        if patched:
            yield Check(SOURCES, name, "ok", _libraries(patched))
            continue
        there = [slot.library for slot in found if slot.library]
        function = found[0].name if found else start
        text = (
            f"{function} in {', '.join(there)} could not be intercepted"
            if there
            else f"no loaded library calls {function} in a way that can be intercepted"
        )
        yield Check(SOURCES, name, state, text, cost, REINSTALL)


def _libraries(slots: Sequence[Slot]) -> str:
    """c10::ProfiledCPUMemoryReporter::New in libc10.so (1), libtorch_cpu.so (2); make_shared<...> of 13 types"""
    parts: dict[str, dict[str, int]] = {}
    kept = [slot for slot in slots if slot.symbol.startswith("St")]
    for slot in slots:
        if slot not in kept:
            libraries = parts.setdefault(slot.name, {})
            libraries[slot.library] = libraries.get(slot.library, 0) + slot.patched
    text = "; ".join(
        f"{name} in {', '.join(f'{library} ({count})' for library, count in libraries.items())}"
        for name, libraries in parts.items()
    )
    return text + (f"; {len(kept)} types of nodes that their pointer destroys" if kept else "")
