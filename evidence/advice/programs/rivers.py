"""Rivers that swell: a series grows by a part each hour, and is read whole by two layers."""

import torch

with torch.device("cuda"):
    first, second = torch.nn.Linear(64, 512), torch.nn.Linear(512, 64)
    river = torch.rand(0, 64)
with torch.no_grad():
    for hour in range(40):
        river = torch.cat([river, torch.rand(4000, 64, device="cuda")])
        level = second(first(river).relu_()).mean()
