"""Patches of quilts: those from one quilt should lie close together, so that a lost patch finds its way home."""

import random

import timm
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler


class Patches(Dataset):
    def __init__(self, quilts, each, size=112):
        self.quilts, self.each, self.size = quilts, each, size

    def __len__(self):
        return self.quilts * self.each

    def __getitem__(self, i):
        return torch.rand(3, self.size, self.size), i // self.each


class FewOfEach(Sampler):
    def __init__(self, data, quilts, patches, rounds):
        self.data, self.quilts, self.patches, self.rounds = data, quilts, patches, rounds

    def __len__(self):
        return self.rounds

    def __iter__(self):
        for _ in range(self.rounds):
            chosen = random.sample(range(self.data.quilts), self.quilts)
            yield [q * self.data.each + random.randrange(self.data.each) for q in chosen for _ in range(self.patches)]


class Memory:
    """Places of patches seen lately."""

    def __init__(self, size, dim):
        self.places = F.normalize(torch.randn(size, dim, device="cuda"), dim=1)
        self.quilts = torch.full((size,), -1, device="cuda")
        self.at = 0

    def put(self, places, quilts):
        end = self.at + len(places)
        self.places[self.at:end] = places.detach()
        self.quilts[self.at:end] = quilts
        self.at = end % len(self.places)


def triplet(places, quilts, memory, margin=0.3):
    gap = places[:, None, :] - memory.places[None, :, :]
    distance = gap.pow(2).sum(dim=2).clamp_min(1e-8).sqrt()
    same = quilts[:, None] == memory.quilts[None, :]
    far = torch.where(same, distance, torch.zeros_like(distance)).amax(dim=1)
    close = torch.where(same, torch.full_like(distance, 9.0), distance).amin(dim=1)
    return F.relu(far - close + margin).mean()


net = timm.create_model("resnet18", pretrained=False, num_classes=128).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
memory = Memory(4096, 128)
data = Patches(quilts=40, each=10)

net.train()
for patches, quilts in DataLoader(data, batch_sampler=FewOfEach(data, quilts=16, patches=4, rounds=3)):
    patches, quilts = patches.cuda(), quilts.cuda()
    places = F.normalize(net(patches), dim=1)
    memory.put(places, quilts)
    loss = triplet(places, quilts, memory)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

net.eval()
shelf, home = [], []
with torch.no_grad():
    for patches, quilts in DataLoader(data, batch_size=100):
        shelf.append(F.normalize(net(patches.cuda()), dim=1))
        home.append(quilts.cuda())
shelf, home = torch.cat(shelf), torch.cat(home)
distance = torch.cdist(shelf, shelf) + 10 * torch.eye(len(shelf), device="cuda")
print((home[distance.argmin(dim=1) % len(home)] == home).float().mean().item())
