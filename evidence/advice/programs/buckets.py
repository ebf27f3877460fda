"""A vision transformer of our own, trained and validated by Lightning."""
import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IMAGE_SIZE = 96
PATCH = 6
CLASSES = 50


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        attn = self.dropout(dots.softmax(dim=-1))
        out = torch.matmul(attn, v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads, mlp_dim, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, dropout)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, mlp_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp_dim, dim), nn.Dropout(dropout)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=384, depth=6, heads=6, mlp_dim=1536, dropout=0.1):
        super().__init__()
        count = (IMAGE_SIZE // PATCH) ** 2
        self.embed = nn.Conv2d(3, dim, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, count + 1, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads, mlp_dim, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.repeat(len(x), 1, 1), x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Classifier(L.LightningModule):
    def __init__(self, lr=3e-4):
        super().__init__()
        self.save_hyperparameters()
        self.model = ViT()
        self.validation_outputs = []

    def training_step(self, batch, batch_idx):
        images, labels = batch
        logits = self.model(images)
        loss = F.cross_entropy(logits, labels)
        self.log("train_loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self.model(images)
        self.validation_outputs.append((logits, labels))

    def on_validation_epoch_end(self):
        logits = torch.cat([row[0] for row in self.validation_outputs])
        labels = torch.cat([row[1] for row in self.validation_outputs])
        self.log("val_acc", (logits.argmax(-1) == labels).float().mean())
        self.validation_outputs.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.05)


def pictures(count):
    return TensorDataset(torch.rand(count, 3, IMAGE_SIZE, IMAGE_SIZE), torch.randint(0, CLASSES, (count,)))


if __name__ == "__main__":
    train = DataLoader(pictures(192), batch_size=32, shuffle=True)
    val = DataLoader(pictures(128), batch_size=64)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="auto",
        devices=1,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), train, val)
