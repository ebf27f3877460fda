"""How likely logs of old ships are, sentence by sentence: a GPT-NeoX of transformers scores them, word by word."""

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

WORDS = 30000


def reader():
    config = GPTNeoXConfig(
        vocab_size=WORDS, hidden_size=384, num_hidden_layers=4, num_attention_heads=6, intermediate_size=1536
    )
    return GPTNeoXForCausalLM(config).cuda().eval()


@torch.no_grad()
def likely(model, ids):
    logits = model(input_ids=ids, use_cache=False).logits
    chances = logits[:, :-1].float().log_softmax(dim=-1)
    return chances.gather(2, ids[:, 1:, None]).squeeze(2).sum(dim=1)


def main():
    model = reader()
    found = []
    for page in range(4):
        ids = torch.randint(0, WORDS, (8, 160)).cuda()
        found.append(likely(model, ids))
        print(page, found[-1].mean().item())
    print(torch.cat(found).shape)


main()
