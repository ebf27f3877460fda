"""A small character model: blocks, tied head, AdamW with a schedule, clipping, evaluation every few steps."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS = 96, 48, 64, 4, 3


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)).bool())

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).split(c, dim=2)
        q, k, v = (z.view(b, t, HEADS, c // HEADS).transpose(1, 2) for z in (q, k, v))
        weights = (q @ k.transpose(-2, -1)) / math.sqrt(k.shape[-1])
        weights = weights.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens, targets=None):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))


def batch(data, size=8):
    at = torch.randint(len(data) - CONTEXT - 1, (size,))
    return torch.stack([data[i : i + CONTEXT] for i in at]), torch.stack([data[i + 1 : i + CONTEXT + 1] for i in at])


@torch.no_grad()
def evaluate(model, data, check):
    model.eval()
    losses = torch.zeros(2)
    for i in range(2):
        _, loss = model(*batch(data))
        losses[i] = loss.item()
        check("evaluation")
    model.train()
    return losses.mean().item()


def main(check: Callable[[str], None] = lambda name: None, steps: int = 10) -> float:
    torch.manual_seed(1337)
    data = torch.randint(VOCABULARY, (4000,))
    model = GPT()
    check("model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    handle = model.blocks[1].register_forward_hook(lambda module, args, output: check("inside forward"))
    loss = None
    for step in range(steps):
        x, y = batch(data)
        check("batch")
        logits, loss = model(x, y)
        check("forward")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        check("backward")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        check("step")
        if step % 4 == 3:
            evaluate(model, data, check)
    handle.remove()
    return loss.item()


if __name__ == "__main__":
    print(f"{main():.4f}")
