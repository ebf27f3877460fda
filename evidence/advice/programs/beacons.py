"""A linear probe on a small ViT of timm: the body as it is, a new head for the kinds of our pictures."""
import timm
import torch
import torch.nn.functional as F
from timm.utils import AverageMeter, accuracy
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLASSES = 100
EPOCHS = 1


class Folder(Dataset):
    def __init__(self, length, seed=0):
        self.length = length
        self.labels = torch.randint(0, CLASSES, (length,), generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return torch.full((3, 224, 224), i / self.length), self.labels[i]


def build():
    model = timm.create_model("vit_small_patch16_224", pretrained=False, num_classes=0)
    model.reset_classifier(CLASSES)
    return model.to(DEVICE)


train_loader = DataLoader(Folder(320), batch_size=64, shuffle=True, drop_last=True)
val_loader = DataLoader(Folder(128, seed=1), batch_size=64)

model = build()
head = model.get_classifier()
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, weight_decay=0.0)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=EPOCHS * len(train_loader))


def train_one_epoch():
    model.train()
    meter = AverageMeter()
    for images, targets in train_loader:
        images, targets = images.to(DEVICE), targets.to(DEVICE)
        logits = model(images)
        loss = F.cross_entropy(logits, targets, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        meter.update(loss.item(), len(images))
    return meter.avg


@torch.inference_mode()
def validate():
    model.eval()
    outputs, labels = [], []
    for images, targets in val_loader:
        outputs.append(model(images.to(DEVICE)))
        labels.append(targets.to(DEVICE))
    top1, top5 = accuracy(torch.cat(outputs), torch.cat(labels), topk=(1, 5))
    return top1.item(), top5.item()


best = -1.0
for epoch in range(EPOCHS):
    loss = train_one_epoch()
    top1, top5 = validate()
    print(f"{epoch}: loss {loss:.3f}  top1 {top1:.1f}  top5 {top5:.1f}")
    if top1 > best:
        best = top1
        weights = {name: value.cpu() for name, value in head.state_dict().items()}
print("best", best)
