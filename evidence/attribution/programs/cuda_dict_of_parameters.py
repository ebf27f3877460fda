"""No modules: parameters are a dictionary of tensors, the network is a function; validated every 20 steps."""

import torch
from torch.nn import functional

torch.manual_seed(0)


def tensor(*shape):
    return torch.randn(*shape, device="cuda").mul_(0.02).requires_grad_()


def network(params, x):
    h = functional.gelu(x @ params["w1"] + params["b1"])
    h = functional.gelu(h @ params["w2"] + params["b2"])
    return h @ params["out"]


params = {
    "w1": tensor(512, 2048),
    "b1": tensor(2048),
    "w2": tensor(2048, 2048),
    "b2": tensor(2048),
    "out": tensor(2048, 100),
}
optimizer = torch.optim.Adam(params.values(), lr=1e-3)
held_out = torch.randn(4, 128, 512, device="cuda")  #: input
for step in range(60):
    x = torch.randn(128, 512, device="cuda")  #: input
    y = torch.randint(0, 100, (128,), device="cuda")  #: input
    loss = functional.cross_entropy(network(params, x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        with torch.no_grad():
            for part in held_out:
                best = network(params, part).argmax(1)
