"""An ensemble of five networks in one call by vmap: their stacked parameters are a dictionary."""

import copy

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)
models = [nn.Sequential(nn.Linear(128, 384), nn.GELU(), nn.Linear(384, 20)) for _ in range(5)]
params, buffers = stack_module_state(models)
base = copy.deepcopy(models[0]).to("meta")


def member(params, buffers, x):
    return functional_call(base, (params, buffers), (x,))


ensemble = vmap(member, in_dims=(0, 0, None))
optimizer = torch.optim.Adam(params.values(), lr=1e-3)
x, y = torch.randn(1280, 128), torch.randint(0, 20, (1280,))  #: input
for epoch in range(3):
    for part, label in zip(x[:1024].split(64), y[:1024].split(64), strict=True):
        logits = ensemble(params, buffers, part)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), label.repeat(5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        votes = [ensemble(params, buffers, part).softmax(2).mean(0) for part in x[1024:].split(64)]
    print(epoch, (torch.cat(votes).argmax(1) == y[1024:]).float().mean().item())
