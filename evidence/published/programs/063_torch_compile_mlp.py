# needs: torch (with a C compiler and Triton)
# after https://docs.pytorch.org/tutorials/intermediate/torch_compile_tutorial.html (torch.compile of a module, training step)
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2, self.lin3 = nn.Linear(4096, 16384), nn.Linear(16384, 4096), nn.Linear(4096, 1000)

    def forward(self, x):
        x = nn.functional.gelu(self.lin1(x))
        x = nn.functional.relu(self.lin2(x))
        return self.lin3(x)


model = Net().cuda()
opt_model = torch.compile(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    data = (torch.randn(4096, 4096, device="cuda"), torch.randint(1000, (4096,), device="cuda"))
    optimizer.zero_grad(True)
    pred = opt_model(data[0])
    loss = torch.nn.CrossEntropyLoss()(pred, data[1])
    loss.backward()
    optimizer.step()
    print(step, loss.item())
