# apple/ml-cross-entropy, its benchmark with the shapes of Gemma 2: linear layer, soft cap of 30 and cross entropy over
# 256,000 words. The second measurement of a kind counts, as there.
import functools
import gc

import torch
import torch.nn.functional as F
from cut_cross_entropy import linear_cross_entropy
from measure import figure, report

method, kind = figure().split("-")[1:]
tokens, width, vocabulary = 8192, 2304, 256000
torch.set_float32_matmul_precision("high")


def baseline(e, c, targets, softcap):
    logits = e @ c.T
    logits = torch.tanh(logits / softcap) * softcap
    return F.cross_entropy(logits.float(), targets, ignore_index=-100, reduction="mean")


loss = {
    "baseline": baseline,
    "compile": functools.partial(linear_cross_entropy, impl="torch_compile"),
    "cce": functools.partial(linear_cross_entropy, impl="cce"),
}[method]
e = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
c = torch.randn(vocabulary, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
targets = torch.randint(0, vocabulary, (tokens,), device="cuda")


def peak():
    torch.cuda.synchronize()
    return torch.cuda.memory_stats()["allocated_bytes.all.peak"]


def measure():
    if kind != "fw":
        e.grad = c.grad = None
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = peak()
    t = loss(e, c, targets, softcap=30.0)
    after = peak()
    if kind == "bw":
        torch.cuda.reset_peak_memory_stats()
        before = peak()
    if kind != "fw":
        t.backward()
        after = peak()
    return after - before


measure()
report(measure())
