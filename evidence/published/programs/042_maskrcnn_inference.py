# needs: torch, torchvision
# after https://docs.pytorch.org/vision/stable/auto_examples/others/plot_visualization_utils.html (instance segmentation: masks over 0.5)
import torch
from torchvision.models.detection import maskrcnn_resnet50_fpn

model = maskrcnn_resnet50_fpn(weights=None, weights_backbone=None, progress=False).cuda()
model = model.eval()
images = [torch.rand(3, 500, 500, device="cuda") for _ in range(2)]
with torch.inference_mode():
    output = model(images)
for one in output:
    selected = one["masks"][one["scores"] > 0.75]
    bool_masks = selected.squeeze(1) > 0.5
    print(bool_masks.shape)
