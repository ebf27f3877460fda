# needs: torch, torchvision
# after https://github.com/pytorch/vision/tree/main/references/segmentation (deeplabv3_resnet50 --aux-loss, batch 8, crops of 480)
import torch
import torchvision
from torch import nn


def criterion(inputs, target):
    losses = {name: nn.functional.cross_entropy(x, target, ignore_index=255) for name, x in inputs.items()}
    return losses["out"] + 0.5 * losses["aux"]


model = torchvision.models.segmentation.deeplabv3_resnet50(
    weights=None, weights_backbone=None, num_classes=21, aux_loss=True
).cuda()
model.train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
for step in range(2):
    image = torch.randn(8, 3, 480, 480, device="cuda")
    target = torch.randint(0, 21, (8, 480, 480), device="cuda")
    loss = criterion(model(image), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

model.eval()
confusion = torch.zeros(21, 21, dtype=torch.int64, device="cuda")
with torch.inference_mode():  # the reference's ConfusionMatrix
    output = model(torch.randn(1, 3, 520, 520, device="cuda"))["out"]
    a, b = torch.randint(0, 21, (520 * 520,), device="cuda"), output.argmax(1).flatten()
    k = (a >= 0) & (a < 21)
    confusion += torch.bincount(21 * a[k].to(torch.int64) + b[k], minlength=441).reshape(21, 21)
print(confusion.shape)
