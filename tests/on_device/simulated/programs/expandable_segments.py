"""A GPT on texts of changing length, its segments expandable (see the environment in __init__), its cache emptied."""

import torch

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT(context=512).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    check("model")
    for step, length in enumerate((64, 512, 128, 384, 256)):
        x, y = tokens(4, length)
        loss = model(x, y)
        check(f"step {step}, forward of length {length} done")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss, x, y
        check(f"step {step} done", quiet=True)
        if step == 2:
            torch.cuda.empty_cache()
            check("cache empty", quiet=True)
