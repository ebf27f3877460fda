"""A language model in one file. --hand NAME makes the change of that name in the code, as a person would."""

import argparse
import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LENGTH, BATCH = 8192, 128, 64, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        x = x + self.out(F.softmax(q @ k.transpose(-2, -1) / math.sqrt(WIDTH), -1) @ v)
        return x + self.mlp(self.second(x))


class Model(nn.Module):
    def __init__(self, hand, is_headless):
        super().__init__()
        self.hand, self.is_headless = hand, is_headless
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for number, block in enumerate(self.blocks):
            if self.hand == "checkpoint" or (self.hand == "checkpoint=blocks.1,blocks.2" and number in (1, 2)):
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x if self.is_headless else self.head(x)


class Bytes(torch.optim.Optimizer):
    """Adam's states in a byte an element, from 4,096 elements on."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state and parameter.numel() >= 4096:
                for name in ("one", "two"):
                    state[name] = torch.zeros(parameter.numel(), dtype=torch.uint8, device="cuda")
                    state["scale of " + name] = torch.zeros((parameter.numel() + 255) // 256, device="cuda")
            elif not state:
                state.update(one=torch.zeros_like(parameter), two=torch.zeros_like(parameter))
            parameter.add_(parameter.grad, alpha=-1e-3)


OPTIMIZERS = {
    "fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "no_foreach": lambda parameters: torch.optim.AdamW(parameters, foreach=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
    "adam8bit": Bytes,
}


def in_parts(head, states, targets, parts):
    def part(some, of_them):
        return F.cross_entropy(head(some), of_them, reduction="sum")

    pairs = zip(states.chunk(parts), targets.chunk(parts), strict=True)
    return sum(checkpoint(part, a, b, use_reentrant=False) for a, b in pairs) / targets.numel()


def step_in_backward(model):
    each = {parameter: torch.optim.AdamW([parameter]) for parameter in model.parameters()}

    def complete(parameter):
        each[parameter].step()
        each[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(complete)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hand", default="")
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    hand = options.hand.split("+")
    is_chunked = "chunked_loss" in hand
    model = Model(next((one for one in hand if one.startswith("checkpoint")), ""), is_chunked).cuda()
    make = next((OPTIMIZERS[one] for one in hand if one in OPTIMIZERS), torch.optim.AdamW)
    optimizer = make(model.parameters()) if "step_in_backward" not in hand else step_in_backward(model)
    for _ in range(options.steps):
        tokens = torch.randint(VOCABULARY, (options.batch, LENGTH + 1), device="cuda")
        with (
            torch.autocast("cuda", torch.bfloat16) if "autocast" in hand else contextlib.nullcontext(),
            torch.autograd.graph.save_on_cpu() if "offload" in hand else contextlib.nullcontext(),
        ):
            made, targets = model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
            loss = in_parts(model.head, made, targets, 8) if is_chunked else F.cross_entropy(made, targets)
        if optimizer is None:
            loss.backward()
            continue
        if "zero_grad_late" not in hand:
            optimizer.zero_grad(set_to_none=not options.zeros or "set_to_none" in hand)
        loss.backward()
        optimizer.step()
        if "zero_grad_late" in hand:
            optimizer.zero_grad()


main()
