"""Answers of a small Llama, sampled token by token with a cache, and how sure the model was of each token."""
import argparse

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Prompts(Dataset):
    def __init__(self, count, length, vocab):
        self.count, self.length, self.vocab = count, length, vocab

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return (torch.arange(self.length) * 13 + index * 977) % self.vocab


def sample(logits, temperature, top_k):
    values, indices = logits.topk(top_k, dim=-1)
    probs = (values / temperature).softmax(dim=-1)
    return indices.gather(-1, torch.multinomial(probs, 1))


@torch.no_grad()
def generate(model, ids, new_tokens, temperature=0.8, top_k=50):
    past, step_logits = None, []
    tokens = ids
    for _ in range(new_tokens):
        output = model(input_ids=tokens, past_key_values=past, use_cache=True)
        past = output.past_key_values
        last = output.logits[:, -1]
        step_logits.append(last)
        tokens = sample(last, temperature, top_k)
        ids = torch.cat([ids, tokens], dim=1)
    return ids, step_logits


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--new-tokens", type=int, default=12)
    parser.add_argument("--prompt", type=int, default=512)
    args = parser.parse_args()

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
        max_position_embeddings=2048,
    )
    model = LlamaForCausalLM(config).to(DEVICE).eval()
    loader = DataLoader(Prompts(32, args.prompt, config.vocab_size), batch_size=args.batch_size)

    answers, scores = [], []
    for ids in loader:
        out, step_logits = generate(model, ids.to(DEVICE), args.new_tokens)
        answers.append(out)
        scores += step_logits
    sure = torch.cat([logits.softmax(dim=-1).max(dim=-1).values for logits in scores])
    print(torch.cat(answers).shape, sure.mean().item())


if __name__ == "__main__":
    main()
