"""A chat service around model.generate; each answer stays in the session, so that the user can come back to it.
Source: huggingface/transformers, docs/source/en/generation_strategies.md, with return_dict_in_generate.
"""
# NEEDS transformers accelerate
# STEPS 48

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

NEW = 6


class Session:
    def __init__(self, model):
        self.model = model
        self.turns = []

    def ask(self, prompt):
        answer = self.model.generate(  # LEAK
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            min_new_tokens=NEW,
            max_new_tokens=NEW,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_scores=True,
        )
        self.turns.append(answer)  # LEAK
        return answer.sequences[0, prompt.shape[1] :].tolist()


set_seed(15)
config = GPT2Config(vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
session = Session(GPT2LMHeadModel(config).eval())
for _ in range(int(sys.argv[1]) // NEW):
    print(session.ask(torch.randint(3, 96, (1, 6))))
