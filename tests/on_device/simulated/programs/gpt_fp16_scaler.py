"""A GPT under float16 autocast with a gradient scaler, each step from two half batches."""

import torch
from torch import nn

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT(width=384, heads=6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cuda")
    check("model")
    for step in range(3):
        for half in range(2):
            x, y = tokens(4, 192)
            with torch.autocast("cuda", torch.float16):
                loss = model(x, y) / 2
            scaler.scale(loss).backward()
            check(f"step {step}, half {half}", quiet=True)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        check(f"step {step} done", quiet=True)
