"""A GPT without the caching allocator (see the environment in __init__): every tensor is a cudaMalloc of its own."""

import torch

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    check("model", quiet=True)
    for step in range(3):
        x, y = tokens(4, 128)
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss, x, y
        check(f"step {step} done", quiet=True)
    del model, optimizer
    check("model gone", quiet=True)
