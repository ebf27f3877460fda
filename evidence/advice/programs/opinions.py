"""Ask eight experts how warm the house will be; where their opinions part, nobody knows."""

import copy
from pathlib import Path

import torch
import torch.nn as nn
from torch.func import functional_call, stack_module_state, vmap

EXPERTS = 8
COLUMNS = 96


def make_expert(hidden=768):
    return nn.Sequential(
        nn.Linear(COLUMNS, hidden),
        nn.SiLU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, hidden),
        nn.SiLU(),
        nn.Dropout(0.1),
        nn.Linear(hidden, hidden),
        nn.SiLU(),
        nn.Linear(hidden, 2),
    )


class Council:
    def __init__(self):
        experts = [make_expert().cuda() for _ in range(EXPERTS)]
        self.params, self.buffers = stack_module_state(experts)
        self.skeleton = copy.deepcopy(experts[0]).to("meta")
        self.first = experts
        self.optimizer = torch.optim.Adam(self.params.values(), lr=1e-3)

    def ask(self, x):
        """x: expert, row, column -> expert, row, (mean, log variance)"""
        def one(params, buffers, x):
            return functional_call(self.skeleton, (params, buffers), (x,))

        return vmap(one, randomness="different")(self.params, self.buffers, x)

    def train_step(self, x, y):
        for p in self.params.values():
            if p.grad is not None:
                p.grad.zero_()
        mean, logvar = self.ask(x).unbind(dim=-1)
        loss = 0.5 * (logvar + (y - mean) ** 2 * torch.exp(-logvar)).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def agreement(self, x):
        mean, logvar = self.ask(x.repeat(EXPERTS, 1, 1)).unbind(dim=-1)
        return mean.mean(dim=0), mean.var(dim=0) + logvar.exp().mean(dim=0)


def houses(rows):
    x = torch.rand(rows, COLUMNS)
    return x, x[:, :10].sum(dim=1) + 0.1 * torch.randn(rows)


def main(report=Path("opinions.txt")):
    x, y = houses(200_000)
    x, y = x.cuda(), y.cuda()
    council = Council()
    for step in range(4):
        rows = torch.randint(0, len(x), (EXPERTS, 1024), device="cuda")
        loss = council.train_step(x[rows], y[rows])
        print(step, loss.item())

    council.skeleton.eval()
    lines = []
    new, _ = houses(4096)
    for part in new.split(2048):
        mean, spread = council.agreement(part.cuda())
        lines.append(f"{mean.mean().item():.3f} {spread.mean().item():.3f}")
    print(report.name, *lines, sep="\n")


if __name__ == "__main__":
    main()
