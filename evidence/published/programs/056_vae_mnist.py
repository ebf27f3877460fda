# needs: torch
# after https://github.com/pytorch/examples/blob/main/vae/main.py (batch 128, Adam)
import torch
from torch import nn, optim
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, 784)

    def forward(self, x):
        h1 = F.relu(self.fc1(x.view(-1, 784)))
        mu, logvar = self.fc21(h1), self.fc22(h1)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


model = VAE().to("cuda")
optimizer = optim.Adam(model.parameters(), lr=1e-3)
train_loss = 0
for batch_idx in range(20):
    data = torch.rand(128, 1, 28, 28).to("cuda")
    optimizer.zero_grad()
    recon_batch, mu, logvar = model(data)
    bce = F.binary_cross_entropy(recon_batch, data.view(-1, 784), reduction="sum")
    loss = bce - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    loss.backward()
    train_loss += loss.item()
    optimizer.step()
print(train_loss / (20 * 128))
