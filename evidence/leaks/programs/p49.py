"""Averaged weights follow the trained ones; layers are thawed one after the other, the schedule warms up."""

import sys

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(30)
steps = int(sys.argv[1])
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.95))
for layer in (net[0], net[2]):
    layer.requires_grad_(False)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
warmup = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 10))
for step in range(steps):
    if step == steps // 4:
        net[2].requires_grad_(True)
    if step == steps // 2:
        net[0].requires_grad_(True)
    for micro in range(2):
        x, y = torch.randn(12, 32), torch.randint(0, 5, (12,))
        (nn.functional.cross_entropy(net(x), y) / 2).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=step % 7 != 0)
    warmup.step()
    average.update_parameters(net)
print(average(torch.randn(1, 32)))
