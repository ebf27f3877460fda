"""A training on a simulated GPU that writes into a file what PyTorch has counted: its versions and peaks."""

import sys

import torch

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(256, 1024, device="cuda")).sum().backward()
    optimizer.step()
peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
with open(sys.argv[1], "w") as file:
    print(torch.__version__, torch.version.cuda, *peaks, file=file)
