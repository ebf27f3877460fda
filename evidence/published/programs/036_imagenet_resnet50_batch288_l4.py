# needs: torch, torchvision
# after https://github.com/pytorch/examples/blob/main/imagenet/main.py (-a resnet50 -b 288, SGD with momentum, float32)
import torch
import torch.nn as nn
import torchvision.models as models

device = torch.device("cuda")
model = models.resnet50().to(device)
criterion = nn.CrossEntropyLoss().to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
model.train()
for i in range(2):
    images = torch.randn(288, 3, 224, 224, device=device)
    target = torch.randint(0, 1000, (288,), device=device)
    output = model(images)
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item())
