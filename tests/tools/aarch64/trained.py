"""A training that says what is alive at its end: the number of storages of its tensors, and their bytes."""

import gc
import sys

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(4):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.randn(64, 256)), torch.randint(0, 10, (64,))).backward()
    optimizer.step()
    kept.append(torch.zeros(1000 + step))
gc.collect()
storages = {}
for one in gc.get_objects():
    if type(one) in (torch.Tensor, torch.nn.Parameter):
        storages[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()
print(len(storages), sum(storages.values()), torch.__version__, sys.version.split()[0], flush=True)
