"""Bricks from a kiln: is one cracked, and which colour did it burn to? One network answers both."""
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet18

COLOURS, ROWS = 9, 48


class Inspector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = resnet18(weights=None)
        self.body.fc = nn.Identity()
        self.crack, self.colour = nn.Linear(512, 1), nn.Linear(512, COLOURS)

    def forward(self, pictures):
        seen = self.body(pictures)
        return self.crack(seen).squeeze(1), self.colour(seen)


inspector = Inspector().cuda()
optimizer = torch.optim.SGD(inspector.parameters(), lr=0.02, momentum=0.9)
for step in range(5):
    pictures = torch.rand(ROWS, 3, 160, 160, device="cuda")
    cracked = torch.randint(0, 2, (ROWS,), device="cuda").float()
    colour = torch.randint(0, COLOURS, (ROWS,), device="cuda")
    crack, burnt = inspector(pictures)
    loss = F.binary_cross_entropy_with_logits(crack, cracked) + 0.5 * F.cross_entropy(burnt, colour)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    print(step, loss.item())
