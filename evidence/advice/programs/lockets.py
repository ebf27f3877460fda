"""Fine-tuning a ResNet in epochs, going back to an earlier one at the end."""

import copy

import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def pictures(count):
    return TensorDataset(torch.randn(count, 3, 96, 96), torch.randint(0, 20, (count,)))


def evaluate(model, loader):
    model.eval()
    losses = []
    with torch.no_grad():
        for images, labels in loader:
            losses.append(F.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE)).item())
    return sum(losses) / len(losses)


def main():
    model = torchvision.models.resnet50(weights=None)
    model.fc = torch.nn.Linear(model.fc.in_features, 20)
    model = model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    training, validation = DataLoader(pictures(24), 8, shuffle=True), DataLoader(pictures(16), 8)
    kept, lowest = copy.deepcopy(model.state_dict()), None
    for epoch in range(3):
        model.train()
        for images, labels in training:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.to(DEVICE)), labels.to(DEVICE))
            loss.backward()
            optimizer.step()
        value = evaluate(model, validation)
        if lowest is None or epoch % 2 == 1:
            lowest, kept = value, copy.deepcopy(model.state_dict())
        print(epoch, value)
    model.load_state_dict(kept)
    print("kept", lowest)


main()
