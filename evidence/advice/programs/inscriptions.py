"""Letters cut in stone, worn by rain: from which century is each inscription?"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CENTURIES = 12
LENGTH = 1024


class Stones(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(idx)
        return torch.randint(0, 256, (LENGTH,), generator=g), idx % CENTURIES


def conv_block(cin, cout):
    return nn.Sequential(
        nn.Conv1d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm1d(cout),
        nn.LeakyReLU(0.1),
        nn.Conv1d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm1d(cout),
        nn.LeakyReLU(0.1),
    )


class Epigrapher(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.letters = nn.Embedding(256, width)
        self.stem = nn.Conv1d(width, width, 5, padding=2)
        self.blocks = nn.ModuleList()
        cin = width
        for cout in (width, 2 * width, 2 * width, 4 * width):
            self.blocks.append(conv_block(cin, cout))
            cin = cout
        self.read = nn.Linear(cin, CENTURIES)

    def features(self, x):
        x = self.stem(self.letters(x).transpose(1, 2))
        maps = []
        for block in self.blocks:
            x = block(x)
            maps.append(x)
            x = F.max_pool1d(x, 2)
        return x, maps

    def forward(self, x):
        x, maps = self.features(x)
        return self.read(x.mean(-1)), maps


def train_one_epoch(net, loader, opt):
    net.train()
    running = 0.0
    for i, (stones, centuries) in enumerate(loader):
        stones, centuries = stones.cuda(), centuries.cuda()
        opt.zero_grad()
        guess, maps = net(stones)
        loss = F.cross_entropy(guess, centuries, label_smoothing=0.1)
        loss.backward()
        opt.step()
        running += loss.item()
    return running / (i + 1)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    worn, guesses = [], []
    for stones, centuries in loader:
        guess, maps = net(stones.cuda())
        guesses.append((guess.argmax(1).cpu() == centuries).float())
        worn.append(maps[0].std(dim=1))
    return torch.cat(guesses).mean().item(), torch.cat(worn).mean().item()


net = Epigrapher().cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
train_loader = DataLoader(Stones(128), batch_size=32, shuffle=True, drop_last=True)
test_loader = DataLoader(Stones(64), batch_size=32)
print("loss", train_one_epoch(net, train_loader, opt))
print("accuracy %.3f, wear %.3f" % evaluate(net, test_loader))
