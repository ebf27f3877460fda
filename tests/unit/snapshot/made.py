"""Memory snapshots made by hand, as PyTorch's pickles have them."""

import io
import pickle
from typing import Any

SEGMENT = 0x7F00_0000_0000
MiB = 1 << 20


def frame(line: int, name: str = "build", filename: str = "/home/u/train.py") -> dict[str, Any]:
    return {"filename": filename, "name": name, "line": line}


def event(
    action: str, addr: int, size: int, time_us: int, frames: list[Any] | None = None, **more: Any
) -> dict[str, Any]:
    """An entry of device_traces."""
    where = {"device_free": addr} if action == "oom" else {"addr": addr}
    return {
        "action": action,
        **where,
        "size": size,
        "stream": 0,
        "time_us": time_us,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": frames or [],
        **more,
    }


def freed(addr: int, size: int, time_us: int) -> list[dict[str, Any]]:
    return [event("free_requested", addr, size, time_us), event("free_completed", addr, size, time_us)]


def block(
    address: int, size: int, requested: int, state: str = "active_allocated", frames: list[Any] | None = None
) -> Any:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames or []}


def segment(address: int, blocks: list[Any], device: int = 0, **more: Any) -> dict[str, Any]:
    total = sum(one["size"] for one in blocks)
    active = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
    return {
        "device": device,
        "address": address,
        "total_size": total,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "small" if total <= 2 * MiB else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
        **more,
    }


def settings(**more: Any) -> dict[str, Any]:
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "",
        "max_split_size": -1,
        "garbage_collection_threshold": 0.0,
        "expandable_segments": False,
        "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
        **more,
    }


def snapshot(segments: list[Any], traces: list[list[Any]], **more: Any) -> dict[str, Any]:
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": settings(),
        "external_annotations": [],
        **more,
    }


def training(steps: int = 4) -> dict[str, Any]:
    """Two parameters, and in each step an activation that comes and goes and 600 bytes that stay."""
    where = [frame(3)]
    step = [frame(484, "wrapper", "/site-packages/torch/optim/optimizer.py"), frame(9, "<module>")]
    trace = [
        event("segment_alloc", SEGMENT, 2 * MiB, 1_000_000, where),
        event("alloc", SEGMENT, 4096, 1_000_001, where),
        event("alloc", SEGMENT + 4096, 1000, 1_000_002, where),
    ]
    blocks = [block(SEGMENT, 4096, 4096, frames=where), block(SEGMENT + 4096, 1024, 1000, frames=where)]
    at = SEGMENT + 5120
    for index in range(steps):
        time = 1_001_000 + 1000 * index
        trace += [event("alloc", at, 600, time, [frame(8)]), event("alloc", at + 1024, 8192, time + 1, [frame(7)])]
        trace += freed(at + 1024, 8192, time + 2)
        trace += [event("alloc", at + 1024, 512, time + 3, step), *freed(at + 1024, 512, time + 4)]
        blocks.append(block(at, 1024, 600, frames=[frame(8)]))
        at += 1024
    blocks.append(block(at, 2 * MiB - (at - SEGMENT), 0, "inactive"))
    return snapshot([segment(SEGMENT, blocks)], [trace])


class _Plain(pickle._Pickler):  # type: ignore[misc]
    """As the pickler of C++ writes (torch::jit::Pickler): whole lists. Python 3.14 makes a tuple of that length."""

    _BATCHSIZE = 1 << 16


def whole_lists(value: Any) -> bytes:
    out = io.BytesIO()
    _Plain(out, 2).dump(value)
    return out.getvalue()
