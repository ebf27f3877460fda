"""Heralds learn which few words to cry first so that the crowd answers as it should."""

import argparse

import torch
from torch import nn
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def build(args):
    config = GPTNeoXConfig(
        vocab_size=args.vocab,
        hidden_size=args.width,
        intermediate_size=4 * args.width,
        num_hidden_layers=args.depth,
        num_attention_heads=8,
        max_position_embeddings=args.length + args.cry,
        use_cache=False,
    )
    crowd = GPTNeoXForCausalLM(config)
    cry = nn.Parameter(torch.randn(args.cry, args.width) * 0.02)
    return crowd.to(args.device), cry


def corpus(args, count=60_000):
    ids = torch.randint(0, args.vocab, (count, args.length))
    labels = ids.clone()
    labels[:, : args.length // 2] = -100
    attention = torch.ones_like(ids)
    return [part.to(args.device) for part in (ids, labels, attention)]


def answer(crowd, cry, ids, labels, attention):
    rows = ids.shape[0]
    words = crowd.get_input_embeddings()(ids)
    before = cry.unsqueeze(0).repeat(rows, 1, 1)
    embeds = torch.cat([before, words], dim=1)
    silent = torch.full((rows, cry.shape[0]), -100, device=ids.device)
    heard = torch.ones(rows, cry.shape[0], dtype=attention.dtype, device=ids.device)
    return crowd(
        inputs_embeds=embeds,
        attention_mask=torch.cat([heard, attention], dim=1),
        labels=torch.cat([silent, labels], dim=1),
    ).loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=20000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--length", type=int, default=160)
    parser.add_argument("--cry", type=int, default=16)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()

    crowd, cry = build(args)
    cry = nn.Parameter(cry.data.to(args.device))
    crowd.eval()
    optimizer = torch.optim.AdamW([cry], lr=0.3, weight_decay=0.0)
    data = corpus(args)
    order = torch.randperm(len(data[0]))

    for step in range(args.steps):
        take = order[step * args.rows : (step + 1) * args.rows].to(args.device)
        ids, labels, attention = (part.index_select(0, take) for part in data)
        loss = answer(crowd, cry, ids, labels, attention)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step:3d} {loss.item():.4f}")
    torch.save(cry.detach().cpu(), "cry.pt")


if __name__ == "__main__":
    main()
