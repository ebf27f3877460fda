"""Programs with which a change does nothing, or does not work: --case NAME."""

import argparse
import os
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--case", default="")
case = parser.parse_args().case
if case == "cpu":
    torch.zeros(8)
    raise SystemExit
if case == "exit":
    raise SystemExit(3)
if case == "sleeps":
    time.sleep(600)
if case == "killed":
    os.kill(os.getpid(), 9)
model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).cuda()
part_is_trained = case in ("clips a part", "has a hook", "later")
optimizer = torch.optim.Adam(model[1].parameters() if part_is_trained else model.parameters())
if case == "has a hook":
    model[0].weight.register_hook(print)
for step in range(8):
    for part in range(2 if case == "accumulates" else 1):
        loss = model(torch.zeros(16, 64, device="cuda")).sum()
        if part == 0:
            optimizer.zero_grad()
        loss.backward()
    if case == "later" and step == 1:
        part = [one for one in model[0].parameters() if one.requires_grad]
        optimizer.add_param_group({"params": part})
    if case.startswith("clips"):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if case == "reads":
        print(model[0].weight.grad.norm())
    if case == "raises":
        raise ValueError("a mistake\nof two lines")
