"""Whispers overheard on trains: a small Llama learns how they go on, and says how surprised it is by new ones."""

import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

SETTINGS = dict(rows=6, together=3, length=320, words=12000, rate=3e-4, decay=0.1, warm=2)


class Overheard(Dataset):
    def __init__(self, count):
        self.ids = torch.randint(0, SETTINGS["words"], (count, SETTINGS["length"]))
        self.trust = torch.rand(count)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"ids": self.ids[i], "trust": self.trust[i]}


def make():
    config = LlamaConfig(
        vocab_size=SETTINGS["words"], hidden_size=384, intermediate_size=1024, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=512, use_cache=False,
    )
    return LlamaForCausalLM(config)


def groups(model, decay):
    """Matrices shrink, the rest is left alone."""
    heavy = [p for p in model.parameters() if p.ndim > 1]
    light = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": heavy, "weight_decay": decay}, {"params": light, "weight_decay": 0.0}]


def trusted_loss(model, ids, trust):
    logits = model(input_ids=ids).logits
    each = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    each = each.view(len(ids), -1).mean(dim=1)
    return (each * trust).sum() / trust.sum(), logits


@torch.no_grad()
def surprise(accelerator, model, loader):
    model.eval()
    found = []
    for batch in loader:
        loss, _ = trusted_loss(model, **batch)
        found.append(accelerator.gather(loss))
    model.train()
    return math.exp(min(20.0, torch.stack(found).mean().item()))


def main():
    set_seed(11)
    accelerator = Accelerator(gradient_accumulation_steps=SETTINGS["together"])
    model = make()
    optimizer = torch.optim.AdamW(groups(model, SETTINGS["decay"]), lr=SETTINGS["rate"], betas=(0.9, 0.95))
    schedule = get_cosine_schedule_with_warmup(optimizer, SETTINGS["warm"], 20)
    learn = DataLoader(Overheard(36), batch_size=SETTINGS["rows"], shuffle=True)
    test = DataLoader(Overheard(16), batch_size=SETTINGS["rows"])
    model, optimizer, schedule, learn, test = accelerator.prepare(model, optimizer, schedule, learn, test)

    for number, batch in enumerate(learn):
        with accelerator.accumulate(model):
            loss, logits = trusted_loss(model, **batch)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.print(number, loss.item(), logits.shape)
    accelerator.print("surprise", surprise(accelerator, model, test))


if __name__ == "__main__":
    main()
