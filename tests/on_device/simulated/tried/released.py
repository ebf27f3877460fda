"""Variables that a `del` at the wrong place would take from what reads them later, or from elsewhere."""

import inspect
import sys

import torch
from torch import nn


def in_a_loop(model, step, x):
    mask = torch.rand_like(x)
    total = 0.0
    for _ in range(3):
        total += (x * mask).sum().item()
    loss = model(x).square().mean() + total
    loss.backward()


def in_one_branch(model, step, x):
    y = model(x)
    loss = (y - x).square().mean()
    other = model(y).mean()
    if step >= 100:
        loss = loss + other
    loss.backward()


def behind_a_handler(model, step, x):
    features = x
    for number in range(2):
        try:
            h = model(x)
            print(h.shape)
            if number == step:
                raise RuntimeError
            features = torch.rand_like(x)
        except RuntimeError:
            pass
        loss = (model(x) - features).square().mean()
        loss.backward()


class Table:
    rows = torch.rand(8192, 4096, device="cuda")
    print(rows.mean())


def from_elsewhere(model, step, x):
    from tests.on_device.simulated.tried import constants

    loss = model(x).mean() + (constants.TABLE.mean() + Table.rows.mean() if step > 100 else constants.MEAN)
    loss.backward()


def by_its_frame(model, step, x):
    y = model(x).square()
    loss = y.mean()
    loss.backward()
    model(x).square().mean().backward()
    print(shape_of_callers())


def shape_of_callers():
    return inspect.stack()[1].frame.f_locals["y"].shape


def main(function):
    model = nn.Sequential(nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 2048)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        function(model, step, torch.rand(4096, 2048, device="cuda"))
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(globals()[sys.argv[1]])
