"""Encodes a corpus once, batch by batch, and returns the embeddings of all sentences in their order.
Source: UKPLab/sentence-transformers, the encode method of SentenceTransformer.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Corpus(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.arange(index, index + 12) * 7 % 300


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(300, 48)
        self.layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        return self.layer(self.embed(tokens))

    def encode(self, sentences, batch_size=16):
        self.eval()
        all_embeddings = []
        with torch.no_grad():
            for tokens in DataLoader(sentences, batch_size=batch_size):
                pooled = self(tokens).mean(dim=1)
                all_embeddings.append(nn.functional.normalize(pooled, dim=1))  # GROWS
        return torch.cat(all_embeddings)


torch.manual_seed(18)
corpus = Corpus(16 * int(sys.argv[1]))
embeddings = Encoder().encode(corpus)
best = (embeddings @ embeddings[0]).topk(4)
print(best.indices.tolist(), best.values.tolist())
