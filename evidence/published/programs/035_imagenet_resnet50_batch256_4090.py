# needs: torch, torchvision
# after https://github.com/pytorch/examples/blob/main/imagenet/main.py (-a resnet50, defaults: batch 256, SGD with momentum, float32)
import torch
import torch.nn as nn
import torchvision.models as models

model = models.__dict__["resnet50"]()
device = torch.device("cuda")
model = model.to(device)
criterion = nn.CrossEntropyLoss().to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
model.train()
for i in range(2):
    images = torch.randn(256, 3, 224, 224).to(device, non_blocking=True)
    target = torch.randint(0, 1000, (256,)).to(device, non_blocking=True)
    output = model(images)
    loss = criterion(output, target)
    _, pred = output.topk(5, 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    acc1 = correct[:1].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / 256)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(i, loss.item(), acc1[0].item())
