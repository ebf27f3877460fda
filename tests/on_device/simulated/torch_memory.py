"""What PyTorch itself says of its memory: snapshot, statistics, history, and storages that Python can reach."""

import gc
from dataclasses import dataclass
from typing import Any

import torch

MIB = 1 << 20
SMALL = MIB  # kSmallSize: what is left of a large block when no more than this would remain is not split off
ROUND = 512  # kMinBlockSize


@dataclass(frozen=True)
class TorchMemory:
    """One device, bytes."""

    live: dict[int, tuple[int, int]]
    """Active blocks: address -> size, requested."""
    pending: int
    """Bytes asked for of blocks whose free waits for another stream: still requested, no longer allocated."""
    segments: dict[int, int]
    stats: dict[str, int]
    history: list[tuple[str, int, int]]
    """As recorded.Device.history; under expandable segments map and unmap stand for alloc and free."""
    reserved: list[tuple[int, int]]
    """Each change of the reserved total that an alloc or free could see: bytes asked for and alive, and reserved."""
    frames: list[list[dict[str, Any]]]
    """Of each alloc in history, empty lists where the history has no stacks."""

    def stat(self, name: str) -> int:
        return self.stats.get(name, 0)


_ACTIONS = {
    "alloc": "alloc",
    "free_requested": "free",
    "segment_alloc": "segment_alloc",
    "segment_free": "segment_free",
    "segment_map": "segment_alloc",
    "segment_unmap": "segment_free",
}
_IGNORED = {"free_completed", "snapshot", "oom"}


def device(index: int) -> TorchMemory:
    """Of the native allocator, whose history must be on."""
    snapshot = torch.cuda.memory._snapshot(index)
    live: dict[int, tuple[int, int]] = {}
    segments: dict[int, int] = {}
    pending = 0
    for segment in snapshot["segments"]:
        if segment["device"] != index:
            continue
        segments[segment["address"]] = segment["total_size"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                live[block["address"]] = (block["size"], block["requested_size"])
            elif block["state"] == "active_pending_free":
                pending += block["requested_size"]
    history: list[tuple[str, int, int]] = []
    totals: list[tuple[int, int]] = []
    frames: list[list[dict[str, Any]]] = []
    reserved = asked = 0
    traces = snapshot["device_traces"]
    for entry in traces[index] if index < len(traces) else []:
        action = entry["action"]
        if action in _IGNORED:
            continue
        action, address, size = _ACTIONS[action], entry["addr"], entry["size"]
        history.append((action, address, size))
        if action == "segment_alloc":
            reserved += size
        elif action == "segment_free":
            reserved -= size
        else:
            asked += size if action == "alloc" else -size
            if action == "alloc":
                frames.append(entry.get("frames", []))
            if not totals or totals[-1][1] != reserved:
                totals.append((asked, reserved))
    return TorchMemory(live, pending, segments, torch.cuda.memory_stats(index), history, totals, frames)


def storages() -> dict[int, dict[int, int]]:
    """CUDA storages that Python objects reach: device -> address -> bytes. Gradients count, saved tensors do not."""
    found: dict[int, dict[int, int]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor):
            _add(found, thing)
            if thing.is_leaf and thing.grad is not None:
                _add(found, thing.grad)
        elif isinstance(thing, torch.UntypedStorage) and thing.device.type == "cuda":
            _add_storage(found, thing)
    return found


def _add(found: dict[int, dict[int, int]], tensor: torch.Tensor) -> None:
    local = getattr(tensor, "_local_tensor", None)  # a DTensor holds its share
    if local is not None:
        _add(found, local)
    elif tensor.device.type == "cuda" and tensor.layout is torch.strided and type(tensor).__name__ != "FakeTensor":
        _add_storage(found, tensor.untyped_storage())


def _add_storage(found: dict[int, dict[int, int]], storage: torch.UntypedStorage) -> None:
    if storage.nbytes():
        found.setdefault(storage.device.index, {})[storage.data_ptr()] = storage.nbytes()


def rounded(size: int, divisions: int = 0) -> int:
    """What PyTorch's allocator makes of a request. divisions: its setting roundup_power2_divisions."""
    if size < ROUND:
        return ROUND
    if divisions > 1 and size > ROUND * divisions:
        floor = 1 << (size.bit_length() - 1)
        if size == floor:
            return size
        step = floor // divisions
        return (size + step - 1) // step * step
    return (size + ROUND - 1) // ROUND * ROUND


def may_be(block: int, requested: int, *, divisions: int = 0, slack: int = SMALL) -> bool:
    """Whether a block of that size may have been given for that request. slack: what may be left on a large one because
    it was not worth splitting off (nothing under expandable segments, more with max_split_size)."""
    size = rounded(requested, divisions)
    return block == size if size <= SMALL else 0 <= block - size <= slack
