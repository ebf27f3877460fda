"""Villages that a traveller may like, judged by the villages that they liked before."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.aggregation import CatMetric

TRAVELLERS, VILLAGES, WIDTH = 50_000, 12_000, 64


class Tastes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.travellers = nn.Embedding(TRAVELLERS, WIDTH)
        self.villages = nn.Embedding(VILLAGES, WIDTH)
        self.crooked = nn.Sequential(nn.Linear(3 * WIDTH, 128), nn.ReLU(), nn.Linear(128, 1))

    def pairs(self, who: Tensor, where: Tensor) -> Tensor:
        """One liking for each pair."""
        u, v = self.travellers(who), self.villages(where)
        return self.crooked(torch.cat([u, v, u * v], dim=-1)).squeeze(-1)

    def straight(self, who: Tensor) -> Tensor:
        """A quicker, rougher liking of every village by each of who."""
        u = self.travellers(who).unsqueeze(1).repeat(1, VILLAGES, 1)
        v = self.villages.weight.unsqueeze(0).repeat(len(who), 1, 1)
        return (u * v).sum(dim=-1) / WIDTH**0.5


def epoch(model: Tastes, optimizer: torch.optim.Optimizer, batches: int, rows: int = 8192) -> float:
    mean = MeanMetric().cuda()
    model.train()
    for _ in range(batches):
        who = torch.randint(0, TRAVELLERS, (rows,), device="cuda")
        liked, other = torch.randint(0, VILLAGES, (2, rows), device="cuda")
        loss = -nn.functional.logsigmoid(model.pairs(who, liked) - model.pairs(who, other)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean.update(loss.detach())
    return mean.compute().item()


@torch.no_grad()
def advise(model: Tastes, many: int = 512, portion: int = 64, best: int = 20) -> tuple[Tensor, Tensor]:
    model.eval()
    spread, chosen = CatMetric().cuda(), []
    for who in torch.arange(many, device="cuda").split(portion):
        liking = model.straight(who)
        rough = liking.topk(best * 5, dim=1).indices
        fine = model.pairs(who.unsqueeze(1).expand_as(rough), rough)
        chosen.append(rough.gather(1, fine.topk(best, dim=1).indices))
        spread.update(liking.std(dim=1))
    return torch.cat(chosen), spread.compute()


if __name__ == "__main__":
    tastes = Tastes().cuda()
    adam = torch.optim.Adam(tastes.parameters(), lr=2e-3)
    for number in range(2):
        print(number, epoch(tastes, adam, batches=3))
        chosen, spread = advise(tastes)
        print(chosen.shape, spread.mean().item())
