"""Fine-tuning of a ConvNeXt with Lightning: AdamW with a cosine, accuracy of a validation set, mixup of batches."""
import lightning as L
import timm
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy


class Pets(Dataset):
    def __init__(self, count, size=160):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = torch.rand(3, 1, self.size).expand(3, self.size, self.size)
        return image, index % 37


class PetsData(L.LightningDataModule):
    def __init__(self, batch_size=32):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(Pets(160), batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(Pets(96), batch_size=self.batch_size)


class Classifier(L.LightningModule):
    def __init__(self, name="convnext_pico", classes=37, lr=5e-4, mixup=0.2):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = timm.create_model(name, pretrained=False, num_classes=0, drop_path_rate=0.1)
        self.head = torch.nn.Sequential(
            torch.nn.LayerNorm(self.backbone.num_features), torch.nn.Linear(self.backbone.num_features, classes)
        )
        self.accuracy = MulticlassAccuracy(classes)

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch, batch_idx):
        images, labels = batch
        order = torch.randperm(images.shape[0], device=images.device)
        mixed = (1 - self.hparams.mixup) * images + self.hparams.mixup * images[order]
        logits = self(mixed)
        here, there = F.cross_entropy(logits, labels), F.cross_entropy(logits, labels[order])
        loss = (1 - self.hparams.mixup) * here + self.hparams.mixup * there
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        self.accuracy.update(logits, labels)
        self.log("val_loss", F.cross_entropy(logits, labels))

    def on_validation_epoch_end(self):
        self.log("val_acc", self.accuracy.compute())
        self.accuracy.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.05)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    L.seed_everything(42)
    model = Classifier()
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="auto",
        devices=1,
        logger=False,
        gradient_clip_val=1.0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=PetsData())
    print(trainer.callback_metrics)


if __name__ == "__main__":
    main()
