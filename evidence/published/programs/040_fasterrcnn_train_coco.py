# needs: torch, torchvision
# after https://github.com/pytorch/vision/tree/main/references/detection (fasterrcnn_resnet50_fpn, 2 pictures a GPU, SGD with momentum)
import torch
import torchvision

model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_classes=91).cuda()
model.train()
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if p.requires_grad], lr=0.02, momentum=0.9, weight_decay=1e-4
)
for step in range(2):
    images, boxes = torch.rand(2, 3, 600, 1000), torch.rand(2, 11, 4) * 200
    boxes[:, :, 2:4] = boxes[:, :, 0:2] + boxes[:, :, 2:4] + 1.0
    labels = torch.randint(1, 91, (2, 11))
    targets = [{"boxes": boxes[i].cuda(), "labels": labels[i].cuda()} for i in range(2)]
    loss_dict = model([image.cuda() for image in images], targets)
    losses = sum(loss_dict.values())
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    print(step, {name: value.item() for name, value in loss_dict.items()})
