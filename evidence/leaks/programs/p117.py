"""Transfer learning: each epoch has a training and a validation phase, and the best weights so far are kept.
Source: pytorch/tutorials, beginner_source/transfer_learning_tutorial.py.
"""
# STEPS 48

import copy
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def images(count):
    x = torch.rand(count, 3, 16, 16)
    return TensorDataset(x, x.mean(dim=(2, 3)).argmax(dim=1))


torch.manual_seed(24)
loaders = {"train": DataLoader(images(48), batch_size=8, shuffle=True), "val": DataLoader(images(24), batch_size=8)}
body = nn.Sequential(nn.Conv2d(3, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
body.requires_grad_(False)
model = nn.Sequential(body, nn.Linear(48, 3))
opt = torch.optim.SGD(model[1].parameters(), lr=0.02, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(opt, step_size=3, gamma=0.5)
best, best_accuracy = copy.deepcopy(model.state_dict()), 0.0
for epoch in range(int(sys.argv[1]) // len(loaders["train"])):
    for phase in ("train", "val"):
        model.train(phase == "train")
        running_loss, right = 0.0, 0
        for x, y in loaders[phase]:
            opt.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                outputs = model(x)
                loss = nn.functional.cross_entropy(outputs, y)
                if phase == "train":
                    loss.backward()
                    opt.step()
            running_loss += loss.item() * len(x)
            right += torch.sum(outputs.argmax(dim=1) == y).item()
        if phase == "train":
            schedule.step()
        accuracy = right / len(loaders[phase].dataset)
        print(f"{epoch} {phase}: loss {running_loss / len(loaders[phase].dataset):.4f} accuracy {accuracy:.3f}")
    if accuracy >= best_accuracy:
        best, best_accuracy = copy.deepcopy(model.state_dict()), accuracy
model.load_state_dict(best)
