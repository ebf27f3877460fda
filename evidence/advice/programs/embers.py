"""Keep the embers alive: REINFORCE over frames of a fire; what was likely is read when the evening is over."""

import torch
from torch import nn


class Fire:
    """A board of heat. One of four moves: feed a corner."""

    def __init__(self, count):
        self.heat = torch.zeros(count, 1, 48, 48)

    def frame(self):
        return self.heat.clone()

    def feed(self, corners):
        self.heat = 0.95 * self.heat + 0.01
        return self.heat.mean(dim=(1, 2, 3)) - 0.01 * corners.float()


class Keeper(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(1, width, 5, 2, 2), nn.ELU(), nn.Conv2d(width, width, 3, 1, 1), nn.ELU(), nn.MaxPool2d(4)
        )
        self.hand = nn.Linear(width * 36, 4)

    def forward(self, frame):
        return self.hand(self.eyes(frame).flatten(1)).log_softmax(dim=1)


def main():
    keeper = Keeper().cuda()
    optimizer = torch.optim.Adam(keeper.parameters(), lr=1e-3)
    for evening in range(3):
        fire, likely, warm = Fire(16), [], []
        for _ in range(12):
            scores = keeper(fire.frame().cuda())
            move = torch.multinomial(scores.detach().exp().cpu().clamp(0.01, 1).nan_to_num(0.25), 1)
            likely.append(scores.gather(1, move.cuda()).squeeze(1))
            warm.append(fire.feed(move.squeeze(1)))
        returns = torch.stack(warm).flip(0).cumsum(0).flip(0).cuda()
        loss = -(torch.stack(likely) * (returns - returns.mean())).sum(0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(evening, loss.item())


main()
