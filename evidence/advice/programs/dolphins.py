"""Dolphins in the bay, eight moments of each leap: what will the ninth look like, and the tenth?"""
import copy
import logging
from functools import cached_property

import torch
from torch import nn

log = logging.getLogger("bay")


class Cell(nn.Module):
    def __init__(self, seen, hidden):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Conv2d(seen + hidden, 4 * hidden, 5, padding=2)

    def forward(self, x, state):
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def nothing(self, like):
        return (like.new_zeros(len(like), self.hidden, *like.shape[-2:]),) * 2


class Leap(nn.Module):
    def __init__(self, hidden=40, layers=2):
        super().__init__()
        self.cells = nn.ModuleList(Cell(1 if i == 0 else hidden, hidden) for i in range(layers))
        self.draw = nn.Conv2d(hidden, 1, 1)

    def forward(self, film, ahead):
        states = [cell.nothing(film[:, 0]) for cell in self.cells]
        drawn, x = [], film[:, 0]
        for t in range(film.shape[1] + ahead - 1):
            for k, cell in enumerate(self.cells):
                states[k] = cell(x, states[k])
                x = states[k][0]
            x = self.draw(x).sigmoid()
            if t >= film.shape[1] - 1:
                drawn.append(x)
            else:
                x = film[:, t + 1]
        return torch.stack(drawn, dim=1)


class Best:
    """Remembers the best weights that its study had."""

    def __init__(self, study):
        self.study, self.loss, self.weights = study, float("inf"), None

    def after_epoch(self, loss):
        if loss < self.loss or self.weights is None:
            self.loss, self.weights = loss, copy.deepcopy(self.study.model.state_dict())


class Study:
    def __init__(self, films, rest, rows=8):
        self.films, self.rest, self.rows = films.cuda(), rest.cuda(), rows
        self.model = Leap().cuda()
        self.helpers = [Best(self)]

    @cached_property
    def optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def loss(self, films):
        self.drawn = self.model(films[:, :8], ahead=2)
        return nn.functional.binary_cross_entropy(self.drawn, films[:, 8:])

    def epoch(self, limit=3):
        for films in self.films.split(self.rows)[:limit]:
            self.optimizer.zero_grad()
            self.loss(films).backward()
            self.optimizer.step()
        with torch.no_grad():
            loss = torch.stack([self.loss(films) for films in self.rest.split(self.rows)[:limit]]).mean().item()
        for helper in self.helpers:
            helper.after_epoch(loss)
        return loss


def main(folds=4):
    films = torch.rand(folds * 90, 10, 1, 64, 64)
    losses = []
    for fold, rest in enumerate(films.chunk(folds)):
        others = torch.cat([part for k, part in enumerate(films.chunk(folds)) if k != fold])
        study = Study(others, rest)
        losses.append(study.epoch())
        log.info("fold %d: %.4f", fold, losses[-1])
    print(f"{sum(losses) / folds:.4f}")


main()
