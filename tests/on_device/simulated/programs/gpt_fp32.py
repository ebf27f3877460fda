"""A GPT in single precision, AdamW as it comes, gradients clipped."""

import torch
from torch import nn

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    check("model")
    for step in range(4):
        x, y = tokens(4, 128)
        loss = model(x, y)
        check(f"step {step}, forward done")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        check(f"step {step}, backward done", quiet=True)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    check("trained", quiet=True)
    del model, optimizer, loss, x, y
    check("model gone", quiet=True)
    torch.cuda.empty_cache()
    check("cache empty", quiet=True)
