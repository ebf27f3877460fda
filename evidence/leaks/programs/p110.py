"""One epoch of fine-tuning; the predictions of the epoch are gathered for its precision and recall.
Source: huggingface/accelerate, examples/nlp_example.py, with the metrics over the training epoch.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, count):
        self.count = count
        self.tokens = torch.randint(0, 200, (128, 16))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        tokens = self.tokens[index % 128]
        return tokens, tokens.max() % 12


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(200, 32)
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 12))

    def forward(self, tokens):
        return self.head(self.embed(tokens))


torch.manual_seed(17)
model = Tagger()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
predictions, references = [], []
for tokens, labels in DataLoader(Sentences(16 * int(sys.argv[1])), batch_size=16, shuffle=True):
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
    predictions.append(logits.detach().softmax(dim=-1))  # GROWS
    references.append(labels.clone())  # GROWS
scores, truth = torch.cat(predictions), torch.cat(references)
hits = scores.argmax(dim=-1) == truth
print(f"accuracy {hits.float().mean():.3f}, sure of {scores.max(dim=-1).values.mean():.3f}")
