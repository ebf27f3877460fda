"""A GPT whose blocks are recomputed in backward: every second one the reentrant way."""

import torch
from torch.utils.checkpoint import checkpoint

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT(layers=6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    for step in range(3):
        inputs, targets = tokens(4, 256)
        x = model.features(inputs)
        for number, block in enumerate(model.blocks):
            x = checkpoint(block, x, use_reentrant=number % 2 == 1)
        loss = model.loss(x, targets)
        check(f"step {step}, forward done")
        loss.backward()
        del x, loss
        check(f"step {step}, backward done", quiet=True)
        optimizer.step()
        optimizer.zero_grad()
    check("trained", quiet=True)
