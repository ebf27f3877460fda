"""Tensors in a pool of their own beside the common one; the pool outlives what was in it, then goes."""

import torch

from tests.on_device.simulated.programs import Check


def main(check: Check) -> None:
    torch.manual_seed(0)
    weights = [torch.randn(1024, 1024, device="cuda") for _ in range(4)]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [torch.randn(size, device="cuda") for size in (100, 50_000, 700_000, 3_000_000, 12_000_000)]
    beside = weights[0] @ weights[1]
    check("a pool with five tensors")
    for step in range(3):
        with torch.cuda.use_mem_pool(pool):
            product = weights[step] @ weights[step + 1]
        inside.append(product)
        check(f"product {step} in the pool")  # outside: PyTorch before 2.8 shows the pool in use alone
    del inside[1::2], product
    check("every second one freed")
    inside.clear()
    torch.cuda.empty_cache()
    check("pool without tensors")
    del pool
    torch.cuda.empty_cache()
    check("pool gone", quiet=True)
    assert beside.shape == (1024, 1024)
