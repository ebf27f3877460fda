"""Greetings carried from one tongue into another by a young interpreter."""

import argparse

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import T5Config, T5ForConditionalGeneration


class Phrasebook(Dataset):
    def __init__(self, pairs, source_length, target_length, vocab):
        self.sources = torch.randint(2, vocab, (pairs, source_length))
        self.targets = torch.randint(2, vocab, (pairs, target_length))

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, index):
        target = self.targets[index].clone()
        target[-(index % 7 + 1) :] = -100
        return {"input_ids": self.sources[index], "labels": target}


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=16000)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--source-length", type=int, default=128)
    parser.add_argument("--target-length", type=int, default=96)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def validate(model, loader, device):
    model.eval()
    total, seen = torch.zeros((), device=device), 0
    logits = []
    for batch in loader:
        batch = {name: value.to(device) for name, value in batch.items()}
        output = model(**batch)
        total += output.loss * len(batch["labels"])
        seen += len(batch["labels"])
        logits.append(output.logits.argmax(-1))
    model.train()
    return (total / seen).item(), torch.cat(logits)


def main():
    args = parse()
    device = torch.device("cuda")
    config = T5Config(
        vocab_size=args.vocab, d_model=384, d_kv=64, d_ff=1024, num_layers=4, num_heads=6, decoder_start_token_id=0
    )
    model = T5ForConditionalGeneration(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    training = Phrasebook(args.batch_size * 4, args.source_length, args.target_length, args.vocab)
    held = Phrasebook(args.batch_size * 3, args.source_length, args.target_length, args.vocab)
    train_loader = DataLoader(training, batch_size=args.batch_size, shuffle=True)
    held_loader = DataLoader(held, batch_size=args.batch_size)

    for batch in train_loader:
        batch = {name: value.to(device) for name, value in batch.items()}
        output = model(**batch)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    loss, answers = validate(model, held_loader, device)
    print(f"held-out loss {loss:.3f} over {answers.shape[0]} phrases")


if __name__ == "__main__":
    main()
