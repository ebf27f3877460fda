"""A transformer whose peak is not the model: scores of all words at all places, in float32, several times over.

cuptimem run -o peak.cmem examples/too_big_a_peak.py
cuptimem run -o chunked.cmem examples/too_big_a_peak.py --chunks 8     # the fix: some places at a time
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH, LENGTH, BATCH = 16_000, 128, 128, 8


class LanguageModel(nn.Module):
    def __init__(self, chunks: int) -> None:
        super().__init__()
        self.chunks = chunks
        self.tokens = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, WORDS)

    def score(self, hidden: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = self.head(hidden)
        return F.cross_entropy(scores.float(), words, reduction="sum")

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.encoder(self.tokens(words[:, :-1]), mask=mask, is_causal=True)
        hidden, targets = hidden.flatten(0, 1), words[:, 1:].flatten()
        if self.chunks == 1:
            return self.score(hidden, targets) / len(targets)
        parts = zip(hidden.chunk(self.chunks), targets.chunk(self.chunks), strict=True)
        # A checkpoint saves its inputs alone; backward makes the scores of one part again.
        losses = [checkpoint(self.score, *part, use_reentrant=False) for part in parts]
        return torch.stack(losses).sum() / len(targets)


def main(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = LanguageModel(options.chunks)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        loss = model(torch.randint(WORDS, (BATCH, LENGTH + 1)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4)
    main(parser.parse_args())
