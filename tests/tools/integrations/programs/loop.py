"""A plain loop that logs to a function, with an evaluation; `leak`: it keeps 4 KiB a step; `oom`: it asks for too much,
and `caught`: goes on."""

import json
import sys

import torch

import cuptimem

mode = sys.argv[1] if len(sys.argv) > 1 else ""
rows, kept = [], []
model = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.Adam(model.parameters(), foreach=False)
with cuptimem.log(
    lambda found, step: rows.append({**found, "at": step}), path="run-{rank}.cmem", every=10, wait=60
) as memory:
    for step in range(40):
        if mode in ("oom", "caught") and step == 25:
            try:
                torch.empty(10**15)
            except RuntimeError:
                if mode == "oom":
                    raise
        model(torch.ones(2, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if mode == "leak":
            kept.append(torch.ones(1024))
        memory.step()
    with memory.phase("evaluate"), torch.no_grad():
        model(torch.ones(4096, 256))
    memory.step()
    with memory.phase("evaluate"), torch.no_grad():
        model(torch.ones(4096, 256))
with open("rows.json", "w") as file:
    json.dump(rows, file)
