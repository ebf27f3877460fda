"""Text generation with a cache of keys and values; nothing is trained."""

import torch
from torch import nn

torch.manual_seed(0)
dim, prompts, tokens = 256, 16, 48


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(2000, dim)
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 2000)

    def forward(self, ids, cache):
        x = self.embed(ids)
        k, v = self.k(x), self.v(x)
        if cache is not None:
            k = torch.cat([cache[0], k], dim=1)  #: kept
            v = torch.cat([cache[1], v], dim=1)  #: kept
        x = nn.functional.scaled_dot_product_attention(self.q(x), k, v)
        return self.out(x[:, -1:]), (k, v)


model = Decoder().eval()
ids = torch.randint(0, 2000, (prompts, 64))  #: input
cache, generated = None, []
with torch.inference_mode():
    for _ in range(tokens):
        logits, cache = model(ids, cache)
        ids = logits.argmax(-1)
        generated.append(ids)
print(torch.cat(generated, 1).shape)
