"""Along the frontiers of old maps, places are told from people and people from rivers."""

import lightning as L
import torch
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy
from transformers import ElectraConfig, ElectraForTokenClassification

KINDS = ["O", "B-PLACE", "I-PLACE", "B-PERSON", "I-PERSON", "B-RIVER", "I-RIVER"]


class Maps(Dataset):
    """Captions; the longer ones come later, as in the atlas."""

    def __init__(self, count, shortest, longest):
        lengths = torch.linspace(shortest, longest, count).long().tolist()
        self.captions = [torch.randint(5, 15000, (length,)) for length in lengths]
        self.kinds = [torch.randint(0, len(KINDS), (length,)) for length in lengths]

    def __len__(self):
        return len(self.captions)

    def __getitem__(self, i):
        return self.captions[i], self.kinds[i]


def pad(items):
    captions, kinds = zip(*items)
    ids = torch.nn.utils.rnn.pad_sequence(captions, batch_first=True, padding_value=0)
    labels = torch.nn.utils.rnn.pad_sequence(kinds, batch_first=True, padding_value=-100)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(c) for c in captions], batch_first=True)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


class AtlasData(L.LightningDataModule):
    def __init__(self, rows=16):
        super().__init__()
        self.rows = rows

    def setup(self, stage):
        self.train, self.val = Maps(self.rows * 6, 80, 256), Maps(128, 240, 256)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.rows, collate_fn=pad)

    def val_dataloader(self):
        return DataLoader(self.val, batch_size=32, collate_fn=pad)


class Surveyor(L.LightningModule):
    def __init__(self, lr=1e-4):
        super().__init__()
        self.save_hyperparameters()
        config = ElectraConfig(
            vocab_size=15000,
            embedding_size=128,
            hidden_size=512,
            num_hidden_layers=5,
            num_attention_heads=8,
            intermediate_size=1536,
            num_labels=len(KINDS),
            attn_implementation="eager",
        )
        self.net = ElectraForTokenClassification(config)
        self.right = MulticlassAccuracy(len(KINDS), ignore_index=-100, validate_args=False)
        self.profiles = []

    def training_step(self, batch, number):
        loss = self.net(**batch).loss
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, number):
        out = self.net(**batch, output_hidden_states=True)
        self.log("val_loss", out.loss)
        self.profiles.append(torch.stack(out.hidden_states[1:]))

    def on_validation_epoch_end(self):
        depth = [torch.stack([p[i].norm(dim=-1).mean() for p in self.profiles]).mean() for i in range(5)]
        self.log_dict({f"norm_{i}": value for i, value in enumerate(depth)})
        self.profiles.clear()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    L.seed_everything(5)
    trainer = L.Trainer(
        accelerator="gpu",
        devices=1,
        max_epochs=1,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Surveyor(), AtlasData())
