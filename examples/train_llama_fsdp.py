"""Llama 3.1 8B over many GPUs with FSDP2, in full or with LoRA; its data is random. For docs/capacity.md.

As torchtitan trained it at the end of 2024: float32 parameters that are gathered in bfloat16, AdamW, selective
checkpointing (of matrix products every second one, attention and what is reduced are kept).
"""

import argparse
import os
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, RANK = 128256, 4096, 14336, 32, 32, 8, 16
KEPT = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


class Low(nn.Module):
    """A linear layer that is frozen, and what LoRA adds to it."""

    def __init__(self, inside, outside):
        super().__init__()
        self.base = nn.Linear(inside, outside, bias=False).requires_grad_(False)
        self.down, self.up = nn.Linear(inside, RANK, bias=False), nn.Linear(RANK, outside, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query, self.out = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.key, self.value = (linear(WIDTH, WIDTH // HEADS * GROUPS) for _ in range(2))
        self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)

    def forward(self, x, turns):
        normed = self.first(x)
        query, key, value = (part(normed).unflatten(2, (-1, 128)) for part in (self.query, self.key, self.value))
        query, key = rotated(query, turns), rotated(key, turns)
        key, value = (part.repeat_interleave(HEADS // GROUPS, dim=2) for part in (key, value))
        heads = (part.transpose(1, 2) for part in (query, key, value))
        x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        normed = self.second(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


def rotated(heads, turns):
    numbers = torch.view_as_complex(heads.float().unflatten(3, (-1, 2)))
    return torch.view_as_real(numbers * turns[None, :, None]).flatten(3).type_as(heads)


class Llama(nn.Module):
    def __init__(self, linear, length):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(linear) for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("turns", torch.empty(length, 64, dtype=torch.complex64), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.turns)
        return self.head(self.norm(x))


def selective():
    count = {False: 0, True: 0}  # of a block's matrix products, and of those that are made again; LoRA's are no step

    def policy(context, operator, *arguments, **keywords):
        if operator == torch.ops.aten.mm.default and RANK not in arguments[1].shape:
            count[context.is_recompute] += 1
            keep = count[context.is_recompute] % 2 == 1
        else:
            keep = operator in KEPT
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    with torch.device("meta"):
        model = Llama(Low if options.lora else partial(nn.Linear, bias=False), options.length)
    if options.lora:
        for part in (
            model.tokens,
            model.norm,
            model.head,
            *(one for block in model.blocks for one in block.children()),
        ):
            if not isinstance(part, Low):
                part.requires_grad_(False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for number, block in enumerate(model.blocks):
        model.blocks[number] = checkpoint_wrapper(block, context_fn=selective, preserve_rng_state=False)
        last = number == len(model.blocks) - 1
        fully_shard(model.blocks[number], mesh=mesh, mp_policy=policy, reshard_after_forward=not last)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device=device)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=3e-4)
    for _ in range(options.steps):
        tokens = torch.randint(VOCABULARY, (options.batch_size, options.length + 1), device=device)
        predicted = model(tokens[:, :-1])
        loss = F.cross_entropy(predicted.flatten(0, 1).float(), tokens[:, 1:].flatten())
        del predicted
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
