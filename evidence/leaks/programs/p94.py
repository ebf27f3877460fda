"""A net that solves Burgers' equation, fitted by one long run of a second-order method; the losses go into a plot.
Source: jayroxis/PINNs, Burgers Equation: one call of LBFGS, whose closure is evaluated thousands of times.
"""

import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 20)
        self.outer = nn.Linear(20, 1)

    def forward(self, x, t):
        return self.outer(torch.tanh(self.inner(torch.cat([x, t], dim=1))))  # LEAK


def slope(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]  # LEAK


class Solver:
    def __init__(self, evaluations):
        self.net = Net()
        self.x = (torch.rand(64, 1) * 2 - 1).requires_grad_()
        self.t = torch.rand(64, 1).requires_grad_()
        self.losses = []
        self.opt = torch.optim.LBFGS(
            self.net.parameters(),
            lr=0.05,
            max_iter=evaluations,
            max_eval=evaluations,
            history_size=8,
            tolerance_grad=0,
            tolerance_change=0,
        )

    def closure(self):
        self.opt.zero_grad()
        u = self.net(self.x, self.t)
        u_x, u_t = slope(u, self.x), slope(u, self.t)
        residual = u_t + u * u_x - 0.01 / torch.pi * slope(u_x, self.x)  # LEAK
        start = self.net(self.x, torch.zeros_like(self.t)) + torch.sin(torch.pi * self.x)  # LEAK
        loss = residual.square().mean() + start.square().mean()  # LEAK
        loss.backward()
        self.losses.append(loss)  # LEAK
        return loss


torch.manual_seed(1)
solver = Solver(int(sys.argv[1]))
solver.opt.step(solver.closure)
print("from", solver.losses[0].item(), "to", solver.losses[-1].item())
