"""Swans told from geese, five ways of dividing the flock, so that no bird judges itself."""

import copy

import torch
import torchvision
from torch.utils.data import DataLoader, Subset, TensorDataset


class Listener:
    def attach(self, coach):
        self.coach = coach

    def after_update(self, loss):
        pass

    def after_round(self, score):
        pass


class Diary(Listener):
    def __init__(self):
        self.lines = []

    def after_update(self, loss):
        self.lines.append(loss.item())


class Champion(Listener):
    best, weights = -1.0, None

    def after_round(self, score):
        if self.weights is None or score > self.best:
            self.best = score
            self.weights = copy.deepcopy(self.coach.model.state_dict())


class Coach:
    def __init__(self, model, listeners, rate=3e-4):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        self.listeners = listeners
        for listener in listeners:
            listener.attach(self)

    def tell(self, event, *args):
        for listener in self.listeners:
            getattr(listener, event)(*args)

    def fit(self, flock, others):
        self.model.train()
        for picture, kind in flock:
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.model(picture.cuda()), kind.cuda())
            loss.backward()
            self.optimizer.step()
            self.tell("after_update", loss)
        self.tell("after_round", self.score(others))

    @torch.inference_mode()
    def score(self, others):
        self.model.eval()
        right = [(self.model(picture.cuda()).argmax(1).cpu() == kind).float().mean() for picture, kind in others]
        return torch.stack(right).mean().item()


def folds(data, parts):
    order = torch.randperm(len(data)).tolist()
    for i in range(parts):
        held = order[i::parts]
        yield Subset(data, [j for j in order if j not in set(held)]), Subset(data, held)


data = TensorDataset(torch.rand(80, 3, 96, 96), torch.randint(0, 2, (80,)))
scores = []
for near, far in folds(data, 5):
    champion, diary = Champion(), Diary()
    model = torchvision.models.resnet34(num_classes=2).cuda()
    coach = Coach(model, [champion, diary])
    coach.fit(DataLoader(near, batch_size=16, shuffle=True, drop_last=True), DataLoader(far, batch_size=16))
    scores.append(champion.best)
    print(len(scores), champion.best, diary.lines[-1])
print("mean", sum(scores) / len(scores))
