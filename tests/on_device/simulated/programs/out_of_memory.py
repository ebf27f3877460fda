"""Looks for the largest batch on a small device: runs out of memory, catches it, makes room, tries a smaller one."""

import gc

import torch

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch: int) -> None:
        x, y = tokens(batch, 256)
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    batch, refused = 4, 0
    while not refused:
        try:
            step(batch)
            batch *= 2
        except torch.OutOfMemoryError:
            refused = batch
    check(f"batch {refused} did not fit")
    optimizer.zero_grad()
    gc.collect()
    check("made room", quiet=True)
    torch.cuda.empty_cache()
    check("cache empty", quiet=True)
    step(refused // 2)
    check(f"batch {refused // 2} fits", quiet=True)

    kept = []
    try:
        while True:
            kept.append(torch.empty(24 << 20, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError as error:
        assert "24.00 MiB" in str(error), error
    check("filled up", quiet=True)
    assert torch.cuda.memory_stats()["num_ooms"] >= 2
    assert torch.cuda.memory_stats()["num_alloc_retries"] >= 2
    del kept[::2]
    check("every second one freed", quiet=True)
    half = torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
    check("reused", quiet=True)
    del half
