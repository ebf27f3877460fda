# needs: torch, torchvision
# after https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.detection.fasterrcnn_resnet50_fpn.html (the example)
import torch
import torchvision

model = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).cuda()
model.eval()
x = [torch.rand(3, 300, 400, device="cuda"), torch.rand(3, 500, 400, device="cuda")]
with torch.no_grad():
    predictions = model(x)
for prediction in predictions:
    keep = prediction["scores"] > 0.5
    print(prediction["boxes"][keep].shape, prediction["labels"][keep].tolist())
