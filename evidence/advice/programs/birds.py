"""Birds by kind: a ResNet-50 of torchvision, SGD with momentum."""

import torch
import torchvision

device = torch.device("cuda")
with device:
    model = torchvision.models.resnet50(num_classes=200)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def batches(count, size=8):
    for _ in range(count):
        yield torch.rand(size, 3, 160, 160), torch.randint(0, 200, (size,))


model.train()
seen = 0
for images, kinds in batches(5):
    images, kinds = images.to(device), kinds.to(device)
    scores = model(images)
    loss = criterion(scores, kinds)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    seen += len(images)
print(seen)
