"""Rumours told apart by a DistilBERT of transformers: it learns a while, then is asked about many; the scores are kept."""

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

ROUNDS, LENGTH = 3, 192


def some(count):
    return torch.randint(0, 12000, (count, LENGTH)).cuda(), torch.randint(0, 6, (count,)).cuda()


def learn(model, optimizer):
    model.train()
    for _ in range(ROUNDS):
        ids, kinds = some(12)
        out = model(input_ids=ids, labels=kinds)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        print(out.loss.item())


def scores(model):
    model.eval()
    found, right = [], []
    for _ in range(5):
        ids, kinds = some(32)
        out = model(input_ids=ids)
        found.append(out.logits)
        right.append(kinds)
    return (torch.cat(found).argmax(dim=1) == torch.cat(right)).float().mean().item()


def main():
    config = DistilBertConfig(vocab_size=12000, dim=384, n_layers=4, n_heads=6, hidden_dim=1536, num_labels=6)
    model = DistilBertForSequenceClassification(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    learn(model, optimizer)
    print(scores(model))


main()
