# Liger-Kernel's benchmark scripts, providers "huggingface" and "torch": ten rounds, each with its own peak; the median.
import copy
import statistics

import torch
from measure import figure, report
from torch import nn

name = figure()
cuda = "cuda"


def cross_entropy(vocabulary):
    logits = torch.randn(8 * 2048, vocabulary, requires_grad=True, device=cuda)
    target = torch.randint(vocabulary, (8 * 2048, 1), device=cuda).squeeze(1)
    loss = nn.CrossEntropyLoss()

    def full():
        loss(logits, target).backward(retain_graph=True)

    return full


def linear_cross_entropy(tokens):
    width, vocabulary = 4096, 128256
    head = nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16, device=cuda)
    full.other = nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16, device=cuda)  # liger's, not used here
    x = torch.randn(tokens, width, requires_grad=True, dtype=torch.bfloat16, device=cuda)
    target = torch.randint(vocabulary, (tokens, 1), device=cuda).squeeze(1)
    loss = nn.CrossEntropyLoss(reduction="mean")

    def both():
        loss(head(x), target).backward()

    return both


def mlp(activation, batch, tokens, width=4096, inner=11008, forward_only=False):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    config = LlamaConfig(hidden_size=width, intermediate_size=inner, hidden_act=activation)
    layer = LlamaMLP(config).to(cuda).to(torch.bfloat16)
    x = torch.randn(batch, tokens, width, device=cuda, dtype=torch.bfloat16, requires_grad=True)

    def forward():
        return layer(x)

    def both():
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    if forward_only:  # the script has timed backward passes before: their thread's handle keeps its workspace
        y = layer(x[:1, :1])
        y.backward(torch.randn_like(y))
        layer.zero_grad()
        x.grad = None
    return forward if forward_only else both


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(dtype)


def norm(layer, *shape, dtype=torch.float32):
    full.other = copy.deepcopy(layer).to(cuda)  # liger's module lies beside it
    layer = layer.to(cuda)
    x = torch.randn(*shape, dtype=dtype, device=cuda)
    dy = torch.randn_like(x)
    x.requires_grad_(True)

    def both():
        layer(x).backward(dy, retain_graph=True)

    return both


def groups():
    layer = nn.GroupNorm(2048 // 4, 2048, eps=1e-6).to(cuda)
    full.other = nn.GroupNorm(2048 // 4, 2048, eps=1e-6).to(cuda)
    x = torch.randn(128, 2048, 512, device=cuda, requires_grad=True)

    def both():
        y = layer(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    return both


def kl_div():
    shape = (8 * 2048, 131072)
    x = torch.randn(*shape, requires_grad=True, device=cuda).log_softmax(dim=-1)
    target = torch.randn(*shape, device=cuda).softmax(dim=-1)
    loss = nn.KLDivLoss(reduction="batchmean")

    def both():
        loss(x, target).backward(retain_graph=True)

    return both


def jsd(tokens, vocabulary):
    log_q = torch.randn(tokens, vocabulary, requires_grad=True, device=cuda).log_softmax(dim=-1)
    log_p = torch.randn(tokens, vocabulary, device=cuda).log_softmax(dim=-1)
    kl, beta = nn.KLDivLoss(reduction="none", log_target=True), 0.5

    def loss(log_q, log_p):
        log_p, log_q = log_p.to(torch.float), log_q.to(torch.float)
        log_p, log_q = log_p.view(-1, log_p.size(-1)), log_q.view(-1, log_q.size(-1))
        m = torch.lerp(torch.exp(log_q), torch.exp(log_p), beta)
        sums = beta * kl(torch.log(m), log_p).sum(dim=-1) + (1 - beta) * kl(torch.log(m), log_q).sum(dim=-1)
        return (sums / log_q.shape[0]).sum()

    def both():
        loss(log_q, log_p).backward(retain_graph=True)

    return both


def tvd():
    shape = (8 * 2048, 131072)
    p = torch.randn(*shape, requires_grad=True, device=cuda).softmax(dim=-1)
    q = torch.randn(*shape, device=cuda).softmax(dim=-1)

    def loss(p, q):
        tv = torch.abs(p - q) / 2.0
        return torch.sum(tv) / p.size(0)

    def both():
        loss(p, q).backward(retain_graph=True)

    return both


def full():  # holds what only has to be there
    pass


programs = {
    "liger-ce-v32768": lambda: cross_entropy(32768),
    "liger-ce-v131072": lambda: cross_entropy(131072),
    "liger-flce-bt4096": lambda: linear_cross_entropy(4096),
    "liger-flce-bt32768": lambda: linear_cross_entropy(32768),
    "liger-swiglu-t1024": lambda: mlp("silu", 4, 1024),
    "liger-swiglu-t8192": lambda: mlp("silu", 4, 8192),
    "liger-geglu-fwd-t4096": lambda: mlp("gelu_pytorch_tanh", 8, 4096, forward_only=True),
    "liger-geglu-full-t4096": lambda: mlp("gelu_pytorch_tanh", 8, 4096),
    "liger-tiledswiglu-hf-t16384": lambda: mlp("silu", 2, 16384, 2048, 4096),
    "liger-rmsnorm-h32768": lambda: norm(RMSNorm(32768), 2048, 32768, dtype=torch.bfloat16),
    "liger-layernorm-n16384": lambda: norm(nn.LayerNorm(16384, eps=1e-6), 4096, 16384),
    "liger-layernorm-n16384-h100": lambda: norm(nn.LayerNorm(16384, eps=1e-6), 4096, 16384),
    "liger-groupnorm-b200-c2048": groups,
    "liger-kldiv-v131072": kl_div,
    "liger-jsd-v131072": lambda: jsd(4 * 2048, 131072),
    "liger-jsd-b200-bt8192": lambda: jsd(8192, 128256),
    "liger-tvd-v131072": tvd,
}
run = programs[name]()
peaks = []
for _ in range(10):
    torch.cuda.memory.reset_peak_memory_stats()
    run()
    peaks.append(torch.cuda.max_memory_allocated())
report(statistics.median(peaks))
