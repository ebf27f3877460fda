"""A bench of judges learns which of two pleas the public would have preferred."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from transformers import OPTConfig, OPTModel

VOCAB, LENGTH = 16000, 320


class Judge(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.opt = OPTModel(config)
        self.score = nn.Linear(config.word_embed_proj_dim, 1, bias=False)

    def forward(self, ids):
        out = self.opt(ids, use_cache=False, output_hidden_states=True)
        return self.score(out.last_hidden_state[:, -1]).squeeze(-1), out.hidden_states


class Verdict:
    """What was decided of a pair, with a way to tell it to the press."""

    def __init__(self, number, preferred, other):
        self.number = number
        self.preferred, self.states = preferred
        self.other, self.other_states = other
        self.announce = functools.partial(self.words, prefix="case")

    def margin(self):
        return self.preferred - self.other

    def words(self, prefix):
        right = (self.margin() > 0).float().mean().item()
        norm = self.states[-1].detach().norm().item()
        return f"{prefix} {self.number}: {right:.2f} ({norm:.1f})"


class Court:
    def __init__(self):
        config = OPTConfig(
            vocab_size=VOCAB,
            hidden_size=512,
            word_embed_proj_dim=512,
            ffn_dim=2048,
            num_hidden_layers=8,
            num_attention_heads=8,
            max_position_embeddings=512,
        )
        self.judge = Judge(config).cuda()
        learning = [*self.judge.score.parameters(), *self.judge.opt.decoder.layers[-2:].parameters()]
        self.optimizer = torch.optim.AdamW(learning, lr=1e-5)

    def hear(self, number, preferred, other):
        verdict = Verdict(number, self.judge(preferred), self.judge(other))
        loss = -F.logsigmoid(verdict.margin()).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return verdict.announce()


def pleas(pairs):
    return torch.randint(0, VOCAB, (2, pairs, LENGTH), device="cuda")


court = Court()
for case in range(6):
    print(court.hear(case, *pleas(8)))
