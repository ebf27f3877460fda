# needs: torch, torchvision
# after https://docs.pytorch.org/tutorials/intermediate/torchvision_tutorial.html (Mask R-CNN on PennFudan, two classes, batch 2)
import math
import sys
import torch
import torchvision
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor
from torchvision.models.detection.mask_rcnn import MaskRCNNPredictor


def get_model_instance_segmentation(num_classes):
    model = torchvision.models.detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    in_features = model.roi_heads.box_predictor.cls_score.in_features
    model.roi_heads.box_predictor = FastRCNNPredictor(in_features, num_classes)
    in_features_mask = model.roi_heads.mask_predictor.conv5_mask.in_channels
    model.roi_heads.mask_predictor = MaskRCNNPredictor(in_features_mask, 256, num_classes)
    return model


def sample(height, width, people):
    masks = torch.zeros(people, height, width, dtype=torch.uint8)
    boxes = []
    for k in range(people):
        x0, y0 = 20 + 90 * k, 40 + 10 * k
        masks[k, y0 : y0 + 250, x0 : x0 + 80] = 1
        boxes.append([x0, y0, x0 + 80, y0 + 250])
    target = {
        "boxes": torch.tensor(boxes, dtype=torch.float32),
        "labels": torch.ones(people, dtype=torch.int64),
        "masks": masks,
    }
    return torch.rand(3, height, width), target


device = torch.device("cuda")
model = get_model_instance_segmentation(2).to(device)
model.train()
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9, weight_decay=0.0005
)
for step in range(2):
    batch = [sample(371, 421, 3), sample(414, 455, 2)]
    images = [image.to(device) for image, _ in batch]
    targets = [{k: v.to(device) for k, v in target.items()} for _, target in batch]
    loss_dict = model(images, targets)
    losses = sum(loss for loss in loss_dict.values())
    loss_value = losses.item()
    if not math.isfinite(loss_value):
        print(f"Loss is {loss_value}, stopping training")
        sys.exit(1)
    optimizer.zero_grad()
    losses.backward()
    optimizer.step()
    print(step, loss_value)
