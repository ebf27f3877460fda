# torchao's benchmark of optimizers: timm's ViT giant in bf16 with activation checkpointing, and ViT huge, compiled and
# under autocast.
import timm
import torch
import torch.nn.functional as F
from measure import figure, report

name = figure()
huge = name.startswith("ao-vith")
kind = "vit_huge_patch14_224.orig_in21k" if huge else "vit_giant_patch14_dinov2.lvd142m"
size = 8 if huge else 32
amp = huge or name == "ao-vitg-amp"
model = timm.create_model(kind, pretrained=False, num_classes=45, **({} if huge else {"img_size": 224}))
if not huge:
    model.set_grad_checkpointing()
if not amp:
    model.bfloat16()
model.cuda()
if huge or name == "ao-vitg-compiled":
    model.compile(fullgraph=True) if huge else model.compile()

if name in ("ao-vitg-offload", "ao-vitg-offload-grads"):
    from torchao.optim import CPUOffloadOptimizer

    optimizer = CPUOffloadOptimizer(
        model.parameters(), torch.optim.AdamW, offload_gradients=name.endswith("grads"), lr=1e-4, fused=True
    )
elif name in ("ao-vith-ao8", "ao-vith-ao4"):
    from torchao.optim import AdamW4bit, AdamW8bit

    optimizer = (AdamW8bit if name.endswith("ao8") else AdamW4bit)(model.parameters(), lr=1e-4)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

for _ in range(3):
    images = torch.randn(size, 3, 224, 224)
    labels = torch.randint(0, 45, (size,))
    images, labels = images.cuda(), labels.cuda()
    if not amp:
        images = images.bfloat16()
    with torch.autocast("cuda", torch.bfloat16, enabled=amp):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
report(torch.cuda.max_memory_allocated())
