"""A GPT cut in two halves, one on each device; activations and gradients cross over."""

import torch

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    model = GPT(layers=4)
    for part in (model.token, model.position, model.blocks[0], model.blocks[1]):
        part.to("cuda:0")
    for part in (model.blocks[2], model.blocks[3], model.norm, model.head):
        part.to("cuda:1")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    check("model")
    for step in range(3):
        inputs, targets = tokens(4, 192, device="cuda:0")
        x = model.features(inputs)
        for number, block in enumerate(model.blocks):
            if number == 2:
                x = x.to("cuda:1")
            x = block(x)
        loss = model.loss(x, targets.to("cuda:1"))
        check(f"step {step}, forward done")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del x, loss
        check(f"step {step} done", quiet=True)
