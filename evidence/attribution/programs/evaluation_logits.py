"""All logits of an evaluation are collected and joined: the evaluation has the peak."""

import torch
from torch import nn

torch.manual_seed(0)


def evaluate(model, batches):
    model.eval()
    logits = []
    with torch.no_grad():
        for x in batches:
            logits.append(model(x))  #: kept
    joined = torch.cat(logits)  #: kept
    return joined.argmax(1).float().mean().item()


model = nn.Sequential(nn.Embedding(1000, 64), nn.Flatten(), nn.Linear(64 * 16, 2000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.randint(0, 1000, (64, 16)) for _ in range(20)]  #: input
for epoch in range(3):
    model.train()
    for x in batches:
        out = model(x)
        loss = nn.functional.cross_entropy(out, x[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(evaluate(model, batches))
