"""Short fables about animals, retold one character at a time by a small storyteller."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(1337)
device = "cuda"
block_size, batch_size = 384, 12
n_embd, n_head, n_layer, vocab = 384, 6, 5, 256
eval_iters = 4

text = torch.randint(0, vocab, (200_000,))
train_data, val_data = text[:180_000], text[180_000:]


def get_batch(split):
    data = train_data if split == "train" else val_data
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x.to(device), y.to(device)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, n_head, C // n_head).permute(2, 0, 3, 1, 4)
        att = q @ k.transpose(-2, -1) / math.sqrt(C // n_head)
        att = att.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        att = self.dropout(F.softmax(att, dim=-1))
        out = (att @ v).transpose(1, 2).reshape(B, T, C)
        return self.proj(out)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa = Attention()
        self.ff = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.1))
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ff(self.ln2(x))


class Storyteller(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(vocab, n_embd)
        self.pos = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab)

    def forward(self, idx, targets):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, vocab), targets.view(-1))


model = Storyteller().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

for it in range(6):
    if it % 3 == 0:
        model.eval()
        with torch.no_grad():
            losses = torch.stack([model(*get_batch("val")) for _ in range(eval_iters)])
        print(f"{it}: val {losses.mean().item():.3f}")
        model.train()
    xb, yb = get_batch("train")
    loss = model(xb, yb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
