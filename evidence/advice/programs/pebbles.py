"""A handful of pebbles, each scanned as a cloud of points, sorted by the brook they came from."""

import torch
import torch.nn as nn
import torch.nn.functional as F

K = 20
BROOKS = 14


def nearest(x, k):
    # x: B, C, N
    inner = x.transpose(2, 1) @ x
    square = (x ** 2).sum(dim=1, keepdim=True)
    distance = square - 2 * inner + square.transpose(2, 1)
    return distance.topk(k, dim=-1, largest=False)[1]


def edges(x, k=K):
    b, c, n = x.shape
    idx = nearest(x, k)
    base = torch.arange(b, device=x.device).view(-1, 1, 1) * n
    flat = x.transpose(2, 1).reshape(b * n, c)
    around = flat[(idx + base).view(-1)].view(b, n, k, c)
    centre = flat.view(b, n, 1, c).repeat(1, 1, k, 1)
    return torch.cat((around - centre, centre), dim=3).permute(0, 3, 1, 2).contiguous()


def block(inp, out):
    return nn.Sequential(nn.Conv2d(inp, out, 1, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.2))


class Sorter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = block(6, 64)
        self.conv2 = block(128, 64)
        self.conv3 = block(128, 128)
        self.conv4 = nn.Sequential(nn.Conv1d(256, 512, 1, bias=False), nn.BatchNorm1d(512), nn.LeakyReLU(0.2))
        self.out = nn.Sequential(nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.LeakyReLU(0.2), nn.Dropout(0.5),
                                 nn.Linear(256, BROOKS))

    def forward(self, x):
        x1 = self.conv1(edges(x)).max(dim=-1)[0]
        x2 = self.conv2(edges(x1)).max(dim=-1)[0]
        x3 = self.conv3(edges(x2)).max(dim=-1)[0]
        x = self.conv4(torch.cat((x1, x2, x3), dim=1))
        x = torch.cat((F.adaptive_max_pool1d(x, 1), F.adaptive_avg_pool1d(x, 1)), dim=1).squeeze(-1)
        return self.out(x)


clouds = torch.rand(96, 3, 1024).cuda()
brooks = torch.randint(0, BROOKS, (96,)).cuda()
net = Sorter().cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)

net.train()
for step in range(4):
    rows = torch.randint(0, 64, (12,))
    out = net(clouds[rows.cuda()])
    loss = F.cross_entropy(out, brooks[rows.cuda()], label_smoothing=0.2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

net.eval()
answers = []
for part in range(64, 96, 16):
    answers.append(net(clouds[part:part + 16]))
print((torch.cat(answers).argmax(1) == brooks[64:]).float().mean().item())
