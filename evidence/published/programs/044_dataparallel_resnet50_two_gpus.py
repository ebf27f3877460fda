# needs: torch, torchvision; two devices
# after https://docs.pytorch.org/tutorials/beginner/blitz/data_parallel_tutorial.html and pytorch/examples' imagenet (nn.DataParallel)
import torch
import torch.nn as nn
import torchvision

device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
model = torchvision.models.resnet50()
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!")
    model = nn.DataParallel(model)
model.to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for step in range(2):
    input = torch.randn(256, 3, 224, 224).to(device)
    target = torch.randint(0, 1000, (256,)).to(device)
    output = model(input)
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("Outside: input size", input.size(), "output_size", output.size(), "loss", loss.item())
