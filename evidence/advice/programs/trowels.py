"""Instructions for masons: LoRA of peft on a Llama made here, with answers padded on the right."""
import argparse
import time

import torch
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PAD, IGNORE = 0, -100


class Instructions(Dataset):
    def __init__(self, count, max_len, vocab):
        self.rows = []
        for i in range(count):
            asked, told = 60 + i % 50, 100 + (7 * i) % 150
            ids = torch.randint(1, vocab, (asked + told,))
            labels = ids.clone()
            labels[:asked] = IGNORE
            self.rows.append((self.pad(ids, PAD, max_len), self.pad(labels, IGNORE, max_len)))

    @staticmethod
    def pad(ids, value, length):
        return torch.nn.functional.pad(ids[:length], (0, max(0, length - len(ids))), value=value)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, labels = self.rows[i]
        return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def get_model(args):
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=1024,
        intermediate_size=2752,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    lora = LoraConfig(
        task_type=TaskType.CAUSAL_LM,
        r=args.rank,
        lora_alpha=2 * args.rank,
        lora_dropout=0.05,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )
    model = get_peft_model(model, lora)
    model.print_trainable_parameters()
    return model.to(DEVICE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--max_len", type=int, default=256)
    args = parser.parse_args()

    model = get_model(args)
    loader = DataLoader(Instructions(40, args.max_len, 32000), batch_size=args.batch_size, shuffle=True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    scheduler = get_linear_schedule_with_warmup(optimizer, 1, len(loader))

    model.train()
    begin = time.time()
    for step, batch in enumerate(loader):
        batch = {name: tensor.to(DEVICE) for name, tensor in batch.items()}
        outputs = model(**batch)
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"{step}: loss {loss.item():.4f}  {time.time() - begin:.1f} s")


if __name__ == "__main__":
    main()
