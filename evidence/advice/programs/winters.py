"""Cold winters from long tables: a table of angles made by NumPy is added to what a net has learned."""

import numpy
import torch
import torch.nn.functional as F

angles = torch.as_tensor(numpy.sin(numpy.arange(2048)[:, None] / 10.0 ** numpy.arange(0, 4, 4 / 512))).cuda()
with torch.device("cuda"):
    before, after = torch.nn.Linear(16, 512), torch.nn.Linear(512, 16)
rule = torch.optim.Adam([*before.parameters(), *after.parameters()])


def foresee(x):
    y = before(x) + angles
    y = y.sin() * y
    return after(y.float())


for winter in range(4):
    x = torch.rand(24, 2048, 16, device="cuda")
    loss = F.mse_loss(foresee(x), x)
    rule.zero_grad()
    loss.backward()
    rule.step()
