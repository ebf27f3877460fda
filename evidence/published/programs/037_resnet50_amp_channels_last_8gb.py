# needs: torch, torchvision
# after https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html and torchvision's classification reference (--amp)
import torch
import torchvision

model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=torch.channels_last)
model.train()
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, weight_decay=2e-5)
scaler = torch.amp.GradScaler("cuda")
lr_scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
for step in range(3):
    image = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    target = torch.randint(0, 1000, (256,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        output = model(image)
        loss = criterion(output, target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    lr_scheduler.step()
    print(step, loss.item(), scaler.get_scale())
