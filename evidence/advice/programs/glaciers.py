"""How glaciers move, by a net that sees two years at once; gradients are zeroed, as an old guide has it."""

import torch
from torch import nn

WIDTH = 2048


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inward = nn.Linear(2 * 512, WIDTH)
        self.hidden = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.outward = nn.Linear(WIDTH, 20000)

    def forward(self, first, second):
        x = self.inward(torch.cat([first, second], dim=1)).relu()
        for layer in self.hidden:
            x = layer(x).relu()
        return self.outward(x)


flow = Flow().cuda()
optimizer = torch.optim.SGD(flow.parameters(), lr=0.01)
for year in range(5):
    first, second = torch.rand(1200, 512, device="cuda"), torch.rand(1200, 512, device="cuda")
    optimizer.zero_grad(set_to_none=False)
    error = (flow(first, second) - 0.5).abs().mean()
    error.backward()
    optimizer.step()
