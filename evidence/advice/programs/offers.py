"""A shop remembers who bought what and learns which offer to put in whose letterbox."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Purchases(Dataset):
    def __init__(self, n, people, things):
        self.who = torch.randint(0, people, (n,))
        self.baskets = torch.randint(0, things, (n, 20))
        self.bought = torch.randint(0, things, (n,))

    def __len__(self):
        return len(self.who)

    def __getitem__(self, i):
        return self.who[i], self.baskets[i], self.bought[i]


class Towers(nn.Module):
    def __init__(self, people, things, dim):
        super().__init__()
        self.person = nn.Embedding(people, dim)
        self.basket = nn.EmbeddingBag(things, dim, mode="mean")
        self.thing = nn.Embedding(things, dim)
        self.left = nn.Sequential(nn.Linear(2 * dim, 256), nn.GELU(), nn.Linear(256, dim))
        self.right = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, dim))

    def forward(self, who, basket, thing):
        a = self.left(torch.cat([self.person(who), self.basket(basket)], dim=1))
        b = self.right(self.thing(thing))
        return F.normalize(a, dim=1), F.normalize(b, dim=1)


def train(model, loader, opt, limit, tau=0.07):
    model.train()
    for i, (who, basket, bought) in enumerate(loader):
        if i == limit:
            break
        who, basket, bought = who.cuda(), basket.cuda(), bought.cuda()
        a, b = model(who, basket, bought)
        logits = a @ b.T / tau
        labels = torch.arange(len(who), device="cuda")
        loss = F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)
        opt.zero_grad(set_to_none=False)
        loss.backward()
        opt.step()
        print(f"{i:3d}  {loss.item():.4f}")


def rank(model, count, things):
    """The best hundred of a slice of things for some people."""
    model.eval()
    best = []
    shelf = F.normalize(model.right(model.thing.weight[:20000]), dim=1)
    for _ in range(4):
        who = torch.randint(0, count, (512,), device="cuda")
        basket = torch.randint(0, things, (512, 20), device="cuda")
        mine = F.normalize(model.left(torch.cat([model.person(who), model.basket(basket)], dim=1)), dim=1)
        best.append((mine @ shelf.T).topk(100, dim=1).indices)
    return torch.cat(best)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=300_000)
    parser.add_argument("--things", type=int, default=120_000)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    args = parser.parse_args()

    data = Purchases(10_000, args.people, args.things)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = Towers(args.people, args.things, args.dim).cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
    train(model, loader, opt, args.steps)
    print(rank(model, args.people, args.things).shape)


if __name__ == "__main__":
    main()
