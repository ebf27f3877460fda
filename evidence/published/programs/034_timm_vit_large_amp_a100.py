# needs: torch, timm
# after https://huggingface.co/docs/timm/en/training_script (train.py --model vit_large_patch16_224 --amp, AdamW), float16 with GradScaler, batch 224
import timm
import torch
from timm.optim import create_optimizer_v2

model = timm.create_model("vit_large_patch16_224", pretrained=False, num_classes=1000).cuda()
model.train()
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
loss_fn = torch.nn.CrossEntropyLoss().cuda()
loss_scaler = torch.amp.GradScaler("cuda")
batch_size = 224
for update in range(2):
    input = torch.randn(batch_size, 3, 224, 224, device="cuda")
    target = torch.randint(0, 1000, (batch_size,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        output = model(input)
        loss = loss_fn(output, target)
    loss_scaler.scale(loss).backward()
    loss_scaler.step(optimizer)
    loss_scaler.update()
    optimizer.zero_grad()
    print(update, loss.item())
