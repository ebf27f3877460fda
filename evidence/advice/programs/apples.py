"""Apples on a sorting belt, eleven sorts of them, told apart before they reach the crates."""
import timm
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Belt(Dataset):
    sorts = 11

    def __init__(self, count):
        self.sort = torch.randint(0, self.sorts, (count,))

    def __len__(self):
        return len(self.sort)

    def __getitem__(self, index):
        return torch.rand(3, 224, 224) * 2 - 1, self.sort[index]


torch.manual_seed(4)
device = torch.device("cuda")
loader = DataLoader(Belt(128), batch_size=32, shuffle=True, drop_last=True)

model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=Belt.sorts, drop_path_rate=0.1)
model = model.to(device)

learning = [*model.blocks[-2:].parameters(), *model.norm.parameters(), *model.head.parameters()]
optimizer = torch.optim.AdamW(learning, lr=3e-4, weight_decay=0.05)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

model.train()
for epoch in range(2):
    seen, total = 0, 0.0
    for pictures, sorts in loader:
        pictures, sorts = pictures.to(device), sorts.to(device)
        optimizer.zero_grad()
        logits = model(pictures)
        loss = criterion(logits, sorts)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(sorts)
        seen += len(sorts)
    print(f"epoch {epoch}: {total / seen:.3f}")
