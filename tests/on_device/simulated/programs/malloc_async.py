"""A GPT on the cudaMallocAsync back end (see the environment in __init__): every tensor is a block of the driver's."""

import torch

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
    model = GPT(layers=3).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    check("model", quiet=True)
    side = torch.cuda.Stream()
    for step in range(3):
        x, y = tokens(4, 128)
        with torch.cuda.stream(side):
            extra = torch.empty(3_000_000, device="cuda")
        extra.record_stream(torch.cuda.current_stream())
        del extra
        loss = model(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss, x, y
        check(f"step {step} done", quiet=True)
    del model, optimizer
    check("model gone", quiet=True)
    torch.cuda.empty_cache()
    check("cache empty", quiet=True)
