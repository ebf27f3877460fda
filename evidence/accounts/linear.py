"""python -m evidence.accounts.linear X DEVICE FOLDER: Linear(1000, 2000), ReLU, Linear(2000, 10) at batch 32, up to
behind a forward and a backward pass, and trained. Prints what cuptimem says of each moment."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cuptimem
from evidence.accounts.run import by_cuptimem
from tests.on_device.simulated.ending import leave


def main() -> None:
    _, _, device, folder = sys.argv
    at = "cuda:0" if device == "cuda" else device
    said: dict[str, Any] = {}

    def profile(moment: str) -> Any:
        return cuptimem.profile(Path(folder, f"{moment}.cmem"))

    def read(moment: str, window: Any) -> None:
        said[moment] = by_cuptimem(window.report.contents("end", at))

    with profile("end") as whole:
        forward, backward = profile("forward"), profile("backward")
        forward.start()
        backward.start()
        model = nn.Sequential(nn.Linear(1000, 2000), nn.ReLU(), nn.Linear(2000, 10)).to(at)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        x = torch.randn(32, 1000).to(at)
        y = model(x)
        forward.stop()
        y.sum().backward()
        backward.stop()
        optimizer.step()
    for moment, window in (("forward", forward), ("backward", backward), ("end", whole)):
        read(moment, window)
    said["peak"] = by_cuptimem(whole.report.contents("peak", at))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
    leave()
