"""Training of a denoiser, with samples every epoch: 20 steps of the sampler each."""

import torch
from diffusers import DDIMScheduler
from torch import nn

torch.manual_seed(0)
scheduler = DDIMScheduler(num_train_timesteps=1000)
scheduler.set_timesteps(20)
model = nn.Sequential(nn.Linear(785, 1024), nn.SiLU(), nn.Linear(1024, 1024), nn.SiLU(), nn.Linear(1024, 784))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def predict(x, t):
    return model(torch.cat([x, t.float()[:, None] / 1000], dim=1))


for epoch in range(2):
    model.train()
    for _ in range(10):
        clean, noise = torch.rand(64, 784), torch.randn(64, 784)  #: input
        t = torch.randint(0, 1000, (64,))  #: input
        loss = nn.functional.mse_loss(predict(scheduler.add_noise(clean, noise, t), t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        x = torch.randn(16, 784)  #: input
        for t in scheduler.timesteps:
            x = scheduler.step(predict(x, t.expand(16)), t, x).prev_sample
