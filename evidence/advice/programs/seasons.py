"""Seasons in photographs of one meadow: first fill in what is covered, then name the month, then pack the eye for travel."""

import io

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda"
PATCH, PATCHES, SHOWN, WIDTH = 16, 49, 16, 512


class Eye(nn.Module):
    def __init__(self, depth=8, heads=8):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH * PATCH, WIDTH)
        self.place = nn.Parameter(torch.randn(1, PATCHES, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, heads, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, patches, keep=None):
        x = self.patch(patches) + self.place
        if keep is not None:
            x = x.gather(1, keep.unsqueeze(-1).repeat(1, 1, WIDTH))
        return self.layers(x)


def meadow(rows):
    picture = torch.rand(rows, 3, 112, 112)
    return F.unfold(picture, PATCH, stride=PATCH).transpose(1, 2).to(device)


# --- what is under the cover? ---
eye = Eye().to(device)
filler = nn.Sequential(nn.Linear(WIDTH * SHOWN, 1024), nn.GELU(), nn.Linear(1024, PATCHES * 3 * PATCH * PATCH)).to(device)
first = torch.optim.AdamW([*eye.parameters(), *filler.parameters()], lr=1.5e-4, betas=(0.9, 0.95))
for i in range(4):
    whole = meadow(24)
    keep = torch.stack([torch.randperm(PATCHES)[:SHOWN] for _ in range(24)]).to(device)
    filled = filler(eye(whole, keep).flatten(1)).view_as(whole)
    loss = F.mse_loss(filled, whole)
    first.zero_grad()
    loss.backward()
    first.step()
    print("cover", i, loss.item())

# --- which month? ---
months = nn.Linear(WIDTH, 12).to(device)
parameters = [*eye.parameters(), *months.parameters()]
second = torch.optim.AdamW(parameters, lr=5e-5)
for i in range(4):
    photos, month = meadow(20), torch.randint(0, 12, (20,), device=device)
    loss = F.cross_entropy(months(eye(photos).mean(dim=1)), month)
    for p in parameters:
        if p.grad is not None:
            p.grad.zero_()
    loss.backward()
    nn.utils.clip_grad_value_(parameters, 0.5)
    second.step()
    print("month", i, loss.item())

# --- pack ---
with torch.no_grad():
    eye.eval()
    vectors = torch.cat([eye(meadow(16)).mean(dim=1) for _ in range(3)])
suitcase = io.BytesIO()
torch.save({"eye": eye.state_dict(), "months": months.state_dict(), "centre": vectors.mean(dim=0)}, suitcase)
print(f"{suitcase.tell() / 2**20:.1f} MiB")
