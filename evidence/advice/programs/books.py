"""Books for readers: two towers over long tables, each reader's last books averaged, all pairs of a batch compared."""

import torch
import torch.nn.functional as F
from torch import nn

READERS, BOOKS, WIDTH = 60_000, 90_000, 96


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.readers = nn.Embedding(READERS, WIDTH)
        self.books = nn.Embedding(BOOKS, WIDTH)
        self.left = nn.Sequential(nn.Linear(2 * WIDTH, 256), nn.GELU(), nn.Linear(256, 128))
        self.right = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, 128))

    def reader(self, who, history):
        return F.normalize(self.left(torch.cat([self.readers(who), self.books(history).mean(dim=1)], dim=1)), dim=1)

    def book(self, which):
        return F.normalize(self.right(self.books(which)), dim=1)


def main():
    towers = Towers().cuda()
    optimizer = torch.optim.Adam(towers.parameters(), lr=1e-3)
    for step in range(4):
        who = torch.randint(0, READERS, (2048,)).cuda()
        history = torch.randint(0, BOOKS, (2048, 20)).cuda()
        next_one = torch.randint(0, BOOKS, (2048,)).cuda()
        scores = towers.reader(who, history) @ towers.book(next_one).T / 0.05
        loss = F.cross_entropy(scores, torch.arange(len(who), device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())


main()
