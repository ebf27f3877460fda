# needs: torch
# after https://lightning.ai/docs/pytorch/stable/common/early_stopping.html (patience, min_delta) and the tutorial of the quickstart's MLP
import torch
from torch import nn


class EarlyStopping:
    def __init__(self, patience=3, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.wait = float("inf"), 0

    def __call__(self, value):
        if value < self.best - self.min_delta:
            self.best, self.wait = value, 0
        else:
            self.wait += 1
        return self.wait >= self.patience


model = nn.Sequential(
    nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
).cuda()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
stop = EarlyStopping(patience=3, min_delta=1e-3)
x, y = torch.randn(8192, 1, 28, 28, device="cuda"), torch.randint(0, 10, (8192,), device="cuda")
best = None
for epoch in range(50):
    model.train()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        validation = loss_fn(model(x[:2048]), y[:2048]).item()
    if validation < stop.best:
        best = {name: value.detach().clone() for name, value in model.state_dict().items()}
    if stop(validation):
        break
if best is not None:
    model.load_state_dict(best)
print("stopped after", epoch + 1, "epochs")
