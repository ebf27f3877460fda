"""A GPT under bfloat16 autocast, fused AdamW, evaluated between its epochs."""

import torch

from tests.on_device.simulated.programs import Check
from tests.on_device.simulated.programs.models import GPT, tokens


def main(check: Check) -> None:
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = GPT(layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(2):
        model.train()
        for step in range(3):
            x, y = tokens(4, 256)
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(x, y)
            check(f"epoch {epoch}, step {step}, forward done")
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        check(f"epoch {epoch} trained", quiet=True)
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            losses = [model(*tokens(8, 256)) for _ in range(2)]
        check(f"epoch {epoch} evaluated", quiet=True)
        del losses
