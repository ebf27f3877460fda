"""A morning editor sorts the headlines into sections, a handful at a time, before the town wakes."""

import time

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, TensorDataset, random_split
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score
from transformers import Qwen2Config, Qwen2ForSequenceClassification

SECTIONS = 9
DEVICE = torch.device("cuda", 0)


def editor():
    config = Qwen2Config(
        vocab_size=40000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
        max_position_embeddings=256,
        num_labels=SECTIONS,
        pad_token_id=0,
    )
    return Qwen2ForSequenceClassification(config).to(DEVICE)


def loaders(count=60, length=48):
    headlines = TensorDataset(torch.randint(1, 40000, (count, length)), torch.randint(0, SECTIONS, (count,)))
    train, test = random_split(headlines, [count - 20, 20])
    return DataLoader(train, batch_size=8, shuffle=True), DataLoader(test, batch_size=4)


class Desk:
    def __init__(self, model, train, test):
        self.model, self.train, self.test = model, train, test
        decay = [p for p in model.parameters() if p.dim() > 1]
        plain = [p for p in model.parameters() if p.dim() <= 1]
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=2e-5)
        self.schedule = CosineAnnealingLR(self.optimizer, len(train))
        self.metrics = MetricCollection(
            {
                "accuracy": MulticlassAccuracy(SECTIONS, validate_args=False),
                "f1": MulticlassF1Score(SECTIONS, validate_args=False),
            }
        ).to(DEVICE)

    def morning(self):
        self.model.train()
        for headlines, sections in self.train:
            self.optimizer.zero_grad()
            output = self.model(input_ids=headlines.to(DEVICE), labels=sections.to(DEVICE), use_cache=False)
            output.loss.backward()
            self.optimizer.step()
            self.schedule.step()
        return output.loss.item()

    def review(self):
        self.model.eval()
        for headlines, sections in self.test:
            logits = self.model(input_ids=headlines.to(DEVICE), use_cache=False).logits
            self.metrics.update(logits.softmax(-1), sections.to(DEVICE))
        return {name: float(value) for name, value in self.metrics.compute().items()}


if __name__ == "__main__":
    began = time.time()
    desk = Desk(editor(), *loaders())
    print(desk.morning(), desk.review(), f"{time.time() - began:.1f} s")
