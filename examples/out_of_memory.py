"""Attention with explicit scores over sentences of growing length: the long ones do not fit.

cuptimem run -o oom.cmem examples/out_of_memory.py --room 512
cuptimem simulate --memory 4GiB examples/out_of_memory.py --length 4096
"""

import argparse
import resource
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

WORDS, WIDTH, HEADS, LAYERS = 1000, 128, 8, 4


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1)
        mixed = scores.softmax(dim=-1) @ v
        out: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + out


def limit_memory(room: int) -> None:
    """Leaves this process room for so many MiB, as `ulimit -v` does."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (room << 20), resource.RLIM_INFINITY))


def main(options: argparse.Namespace) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = {f"layer{n}": Layer() for n in range(LAYERS)}
    parts = {"embedding": nn.Embedding(WORDS, WIDTH), **layers, "head": nn.Linear(WIDTH, WORDS)}
    model = nn.Sequential(OrderedDict(parts)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    if options.room:
        limit_memory(options.room)
    for length in (64 << n for n in range(7) if 64 << n <= options.length):
        words = torch.randint(WORDS, (4, length), device=device)
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"length {length}: loss {loss.item():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--room", type=int, help="MiB that the process may take beside what it has")
    parser.add_argument("--length", type=int, default=2048)
    main(parser.parse_args())
