"""Programs that use the allocator in different ways. Each is called with both recorders on and nothing allocated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

MIB = 1 << 20


def blocks(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def holes() -> list[Any]:
    """Segments that go back from the middle, on two streams, and blocks that come into what is left."""
    small = [blocks(3000 + 700 * i) for i in range(40)]
    large = [blocks(3 * MIB + (i << 18)) for i in range(24)]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        side = [blocks(5 * MIB) for _ in range(8)]
    del large[6:18]
    del side[2:5]
    torch.cuda.empty_cache()
    more, less = blocks(50 * MIB), blocks(7 * MIB)
    del more
    torch.cuda.empty_cache()
    return [small, large, side, less]


def training() -> list[Any]:
    """A model on batches of changing size; the gradients are kept to the end."""
    model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.LayerNorm(2048), nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in (64, 1024, 16, 4096, 256):
        optimizer.zero_grad()
        loss = model(torch.randn(batch, 512, device="cuda")).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return [model, optimizer, loss]


def streams() -> list[Any]:
    """Blocks that another stream still uses when they are freed; pinned copies to and from the host."""
    stream = torch.cuda.Stream()
    kept = []
    for i in range(12):
        x = blocks((i % 5 + 1) * 3 * MIB)
        x.record_stream(stream)
        host = torch.empty(x.numel(), dtype=torch.uint8, pin_memory=True)
        with torch.cuda.stream(stream):
            kept.append(x.to("cpu", non_blocking=True) if i % 4 == 0 else x.sum())
            x.copy_(host, non_blocking=True)
        del x, host
    torch.cuda.synchronize()
    kept.append(blocks(MIB))  # frees what waited
    return kept


def refusals() -> list[Any]:
    """Out of memory twice, of a device that is nearly full of segments that are partly used."""
    kept = [blocks(MIB * 700) for _ in range(20)]
    small = [blocks(6 * MIB) for _ in range(30)]
    del kept[3:9]
    del small[::2]
    for size in (30, 22):
        with contextlib.suppress(torch.cuda.OutOfMemoryError):
            blocks(size << 30)
    kept.append(blocks(900 * MIB))
    return [kept, small]


def pools() -> list[Any]:
    """A graph's private pool, and a pool of the program."""
    x, w = torch.randn(256, 256, device="cuda"), torch.randn(256, 256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ w).relu() @ w
    graph.replay()
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [blocks(n * MIB) for n in (1, 3, 30)]
    del inside[1]
    return [x, w, graph, y, pool, inside]


PROGRAMS: dict[str, Callable[[], list[Any]]] = {
    "holes": holes,
    "training": training,
    "streams": streams,
    "refusals": refusals,
    "pools": pools,
}
