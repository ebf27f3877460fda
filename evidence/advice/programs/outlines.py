"""The spread of a thousand measurements, bent step by step into a plain bell and back again."""

import torch
import torch.nn as nn


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.cut = dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.cut, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 2 * self.cut),
        )

    def split(self, x):
        a, b = x[:, :self.cut], x[:, self.cut:]
        return (b, a) if self.flip else (a, b)

    def join(self, a, b):
        return torch.cat((b, a) if self.flip else (a, b), dim=1)

    def forward(self, x):
        a, b = self.split(x)
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        return self.join(a, b * s.exp() + t), s.sum(dim=1)

    def inverse(self, z):
        a, b = self.split(z)
        s, t = self.net(a).chunk(2, dim=1)
        return self.join(a, (b - t) * (-torch.tanh(s)).exp())


class Flow(nn.Module):
    def __init__(self, dim, hidden, depth):
        super().__init__()
        self.steps = nn.ModuleList([Coupling(dim, hidden, i % 2 == 1) for i in range(depth)])

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for step in self.steps:
            x, log_det = step(x)
            total = total + log_det
        return total - 0.5 * (x ** 2).sum(dim=1)

    def sample(self, n, dim):
        z = torch.randn(n, dim, device="cuda")
        for step in reversed(self.steps):
            z = step.inverse(z)
        return z


class Trainer:
    def __init__(self, flow, lr):
        self.flow = flow
        self.optimizer = torch.optim.AdamW(flow.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 100)
        self.best = None

    def step(self, rows):
        loss = -self.flow.log_prob(rows).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.flow.parameters(), 5.0)
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def snapshot(self):
        self.best = {name: value.clone() for name, value in self.flow.state_dict().items()}


DIM = 64
table = torch.randn(20_000, DIM).to("cuda")
trainer = Trainer(Flow(DIM, hidden=1024, depth=14).to("cuda"), lr=2e-4)

for epoch in range(2):
    for rows in table[:2048].split(512):
        value = trainer.step(rows)
    trainer.snapshot()
    print(epoch, value)

trainer.flow.eval()
print(trainer.flow.sample(1024, DIM).std().item())
