"""Tomatoes sorted by ripeness; first the pace of learning is sought, then the sorting is learnt at that pace."""

import copy
import math

import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, TensorDataset

KINDS = 12
DEVICE = torch.device("cuda")


class PaceFinder:
    """Walks the rate up from low to high and watches a fixed basket of tomatoes."""

    def __init__(self, model, basket, low=1e-5, high=1.0, walk=6):
        self.model, self.basket = model, basket
        self.rates = [low * math.exp(math.log(high / low) * i / (walk - 1)) for i in range(walk)]
        self.curve = []

    def __call__(self, loader):
        start = copy.deepcopy(self.model.state_dict())
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rates[0], momentum=0.9)
        source = iter(loader)
        for rate in self.rates:
            for group in optimizer.param_groups:
                group["lr"] = rate
            x, y = (part.to(DEVICE) for part in next(source))
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(self.model(x), y).backward()
            optimizer.step()
            x, y = self.basket
            self.curve.append(F.cross_entropy(self.model(x), y))
        self.model.load_state_dict(start)
        return self.suggestion()

    def suggestion(self):
        falls = torch.stack(self.curve).diff().tolist()
        steepest = min(range(len(falls)), key=falls.__getitem__)
        return self.rates[steepest]


def learn(model, loader, rate, rounds=1):
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=rounds * len(loader))
    for _ in range(rounds):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE), label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        print(f"{schedule.get_last_lr()[0]:.2e} {loss.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(4)
    data = TensorDataset(torch.rand(192, 3, 112, 112), torch.randint(0, KINDS, (192,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = torchvision.models.mobilenet_v3_large(num_classes=KINDS).to(DEVICE)
    basket = next(iter(loader))
    finder = PaceFinder(model, [part.to(DEVICE) for part in basket])
    rate = finder(loader)
    learn(model, loader, rate)
