# torchtune: what its LoRA recipes log after the model is made, in bf16 on the device. Written without the package:
# its last release does not import with today's torchao. The tensors are the same, in the same order.
import copy

import torch
from measure import figure, report
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, inputs, outputs, rank):
        super().__init__()
        self.weight = nn.Linear(inputs, outputs, bias=False).weight
        self.lora_a = nn.Linear(inputs, rank, bias=False)
        self.lora_b = nn.Linear(rank, outputs, bias=False)


class Rope(nn.Module):
    """Its cache is in single precision whatever the model is."""

    def __init__(self, width, length):
        super().__init__()
        theta = 1.0 / (10_000 ** (torch.arange(0, width, 2)[: width // 2].float() / width))
        angles = torch.outer(torch.arange(length, dtype=theta.dtype), theta).float()
        self.register_buffer("cache", torch.stack([torch.cos(angles), torch.sin(angles)], dim=-1), persistent=False)


class Layer(nn.Module):
    def __init__(self, width, heads, groups, inner, rank, everywhere, rope=None):
        super().__init__()
        kv = width // heads * groups

        def linear(name, inputs, outputs):
            where = ("q", "v", "output", "w1", "w2", "w3") if everywhere else ("q", "v")
            make = LoRALinear(inputs, outputs, rank) if name in where else nn.Linear(inputs, outputs, bias=False)
            setattr(self, name, make)

        linear("q", width, width)
        linear("k", width, kv)
        linear("v", width, kv)
        linear("output", width, width)
        self.rope = rope or Rope(width // heads, 4096)
        linear("w1", width, inner)
        linear("w2", inner, width)
        linear("w3", width, inner)
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers, tied):
        super().__init__()
        self.embeddings, self.layers, self.norm = nn.Embedding(vocabulary, width), layers, nn.RMSNorm(width)
        if not tied:
            self.output = nn.Linear(width, vocabulary, bias=False)


def llama2_7b():
    """As of April 2024: the layers are copies of one, which lives until they are made, and each has its own cache."""
    embeddings = nn.Embedding(32000, 4096)
    layer = Layer(4096, 32, 32, 11008, 8, everywhere=False)
    output = nn.Linear(4096, 32000, bias=False)
    model = Model.__new__(Model)
    nn.Module.__init__(model)
    model.embeddings, model.output = embeddings, output
    model.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(32))
    return model


def llama32_3b():
    """As of December 2024: one cache for all layers, over the model's 131,072 positions."""
    rope = Rope(128, 131072)
    layers = nn.ModuleList(Layer(3072, 24, 8, 8192, 64, True, rope) for _ in range(28))
    return Model(128256, 3072, layers, tied=True)


name = figure()
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = llama2_7b() if name.startswith("tune-l2") else llama32_3b()
report(torch.cuda.max_memory_allocated() if name.endswith("alloc") else torch.cuda.max_memory_reserved())
