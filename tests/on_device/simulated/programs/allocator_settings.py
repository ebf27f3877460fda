"""Tensors of changing sizes with the allocator's settings changed (see the environment in __init__): no large block is
split, sizes are rounded up to quarters of powers of two, and cached segments are collected early."""

import torch

from tests.on_device.simulated.programs import Check


def main(check: Check) -> None:
    torch.cuda.set_per_process_memory_fraction(0.5)
    random = torch.Generator().manual_seed(0)
    kept: list[torch.Tensor] = []
    for turn in range(6):
        for _ in range(25):
            size = int(2 ** (8 + 18 * torch.rand((), generator=random).item()))
            kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        check(f"turn {turn}, filled", quiet=True)
        kept = [tensor for tensor in kept if torch.rand((), generator=random).item() < 0.4]
        check(f"turn {turn}, thinned", quiet=True)
    torch.cuda.empty_cache()
    check("cache empty", quiet=True)
