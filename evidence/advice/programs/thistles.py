"""Thistles drawn out of noise; a slower twin of the painter follows its every stroke."""

import copy

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DModel


class Twin:
    """The painter's weights, averaged over what it has been."""

    def __init__(self, net, decay=0.995):
        self.decay = decay
        self.net = copy.deepcopy(net).eval()

    def follow(self, net):
        for mine, theirs in zip(self.net.parameters(), net.parameters()):
            mine.data.mul_(self.decay).add_(theirs.data, alpha=1 - self.decay)


def pictures(rows):
    while True:
        yield torch.rand(rows, 3, 48, 48, device="cuda") * 2 - 1


@torch.no_grad()
def paint(net, noise, rows=8, strokes=4):
    noise.set_timesteps(strokes)
    canvas = torch.randn(rows, 3, 48, 48, device="cuda")
    film = [canvas]
    for t in noise.timesteps:
        canvas = noise.step(net(canvas, t).sample, int(t), canvas).prev_sample
        film.append(canvas)
    return torch.stack(film, dim=1)


net = UNet2DModel(
    sample_size=48,
    block_out_channels=(96, 192, 384),
    down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
    layers_per_block=1,
    norm_num_groups=16,
).cuda()
twin = Twin(net)
noise = DDPMScheduler(num_train_timesteps=400)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=1e-3)
source = pictures(rows=4)

for number in range(6):
    clean = next(source)
    grain = torch.randn_like(clean)
    when = torch.randint(0, 400, (len(clean),))
    dirty = noise.add_noise(clean, grain, when)
    guess = net(dirty, when.cuda()).sample
    loss = F.mse_loss(guess, grain)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    twin.follow(net)
    print(number, loss.item())

film = paint(twin.net, noise)
print(film.shape, film.mean().item())
