# needs: torch, torchvision
# after https://github.com/pytorch/vision/tree/main/references/detection (retinanet_resnet50_fpn), with 32 pictures on one small GPU
import torch
import torchvision

model = torchvision.models.detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91).cuda()
model.train()
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9, weight_decay=1e-4
)
for step in range(2):
    images = [torch.rand(3, 800, 1216, device="cuda") for _ in range(32)]
    targets = [
        {
            "boxes": torch.tensor([[10.0, 20.0, 200.0, 300.0], [400.0, 100.0, 700.0, 500.0]]).cuda(),
            "labels": torch.tensor([3, 17]).cuda(),
        }
        for _ in range(32)
    ]
    loss_dict = model(images, targets)
    losses = sum(loss_dict.values())
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    print(step, losses.item())
