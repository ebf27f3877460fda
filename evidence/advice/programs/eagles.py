"""Eagles in short films: do they glide, dive, turn, land or only sit there?"""
import itertools
import time

import torch
from torch import nn
from torchvision.models.video import r3d_18

FRAMES, SIDE, KINDS = 12, 96, 5


class Films:
    """All that the ranger has filmed, cut to one length."""

    def __init__(self, count, device):
        self.frames = torch.rand(count, 3, FRAMES, SIDE, SIDE).to(device)
        self.kinds = torch.randint(0, KINDS, (count,)).to(device)

    def __len__(self):
        return len(self.kinds)

    def shuffled(self, rows):
        order = torch.randperm(len(self))
        for some in order.split(rows):
            yield self.frames[some], self.kinds[some]


class Watcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = r3d_18(weights=None)
        self.body.fc = nn.Identity()
        self.night = nn.Parameter(torch.ones(3))
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(512, KINDS))

    def forward(self, films):
        shade = self.night.view(1, 3, 1, 1, 1).repeat(len(films), 1, FRAMES, SIDE, SIDE)
        return self.head(self.body(films * shade))


def spell(seconds):
    return f"{seconds // 60:.0f}:{seconds % 60:04.1f}"


device = "cuda:0"
films = Films(200, device)
watcher = Watcher().to(device)
rates = [
    {"params": watcher.body.parameters(), "lr": 1e-3},
    {"params": itertools.chain([watcher.night], watcher.head.parameters()), "lr": 1e-2},
]
optimizer = torch.optim.SGD(rates, momentum=0.9, nesterov=True)
start = time.time()

watcher.train()
for step, (frames, kinds) in enumerate(itertools.islice(films.shuffled(8), 5)):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(watcher(frames), kinds)
    loss.backward()
    optimizer.step()
    print(f"{step}  {loss.item():.3f}  {spell(time.time() - start)}")

watcher.eval()
right = torch.zeros(KINDS, device=device)
with torch.no_grad():
    for frames, kinds in itertools.islice(films.shuffled(16), 4):
        hits = watcher(frames).argmax(dim=1) == kinds
        right.index_add_(0, kinds, hits.float())
print(right.tolist())
