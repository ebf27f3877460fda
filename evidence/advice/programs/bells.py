"""The tone of a bell from its first milliseconds: sixteen equal layers, a few recordings at a time."""

import torch


class Step(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.turn = torch.nn.Linear(n, n)

    def forward(self, x):
        return x + torch.tanh(self.turn(x))


class Bell(torch.nn.Module):
    def __init__(self, n=1280, depth=16):
        super().__init__()
        self.steps = torch.nn.ModuleList([Step(n) for _ in range(depth)])
        self.tone = torch.nn.Linear(n, 1)

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return self.tone(x)


def learn(model, rounds):
    rule = torch.optim.NAdam(model.parameters(), lr=1e-3)
    for _ in range(rounds):
        x, y = torch.rand(32, 1280).cuda(), torch.rand(32, 1).cuda()
        error = torch.nn.functional.l1_loss(model(x), y)
        rule.zero_grad()
        error.backward()
        rule.step()


with torch.device("cuda"):
    bell = Bell()
learn(bell, 5)
