# Complete programs of issues, texts and out-of-memory messages.
import gc

import torch
from measure import figure, message, report
from torch import nn

name = figure()


class Chain(nn.Module):
    def __init__(self, everything):
        super().__init__()
        self.everything = everything

    def forward(self, x):
        y = x.div(2)
        z = y.add(10)
        l = z.mul(2.0)  # noqa: E741 (as in the text)
        return (l.sum(), y, z, l) if self.everything else l.sum()


def stas_forward():
    x = torch.rand(int(15e9), device="cuda", requires_grad=True)
    loss = Chain(False).to("cuda")(x)
    return loss


def stas_backward():
    x = torch.rand(int(10e9), device="cuda", requires_grad=True)
    loss, y, z, l = Chain(True).to("cuda")(x)  # noqa: E741
    loss.backward()


def tensors_of_a_gib(most):
    """How many copies of a host tensor of 1 GiB fit."""
    held = []
    try:
        for _ in range(most):
            held.append(torch.ones(1024 * 2**18).cuda().contiguous())
    except torch.OutOfMemoryError:
        return len(held)
    raise AssertionError("all of them fitted")


def cumsum():
    x1 = torch.randn(1048576, 2048, device="cuda")  # noqa: F841
    t1 = torch.randn([1048576, 2048], device="cuda")  # noqa: F841
    torch.randn([1048576, 2048], device="cuda")


def linear_workspace():
    def f():
        model = nn.Linear(1, 1, device="cuda")
        b = torch.randn(1, 1, device="cuda")
        model(b)

    f()
    gc.collect()
    torch.cuda.synchronize()
    return torch.cuda.memory_allocated()


def forward_of_one_layer():
    """25 MB of weights and 10 MB of output: 2,500 x 2,500 in single precision, a batch of 1,000."""
    layer = nn.Linear(2500, 2500, bias=False, device="cuda")
    x = torch.randn(1000, 2500, device="cuda")
    before = torch.cuda.memory_allocated()
    y = layer(x)  # noqa: F841
    return torch.cuda.memory_allocated() - before


def small_tensors():
    """Reserved bytes when tensors of 40,000 bytes have reached what the message calls allocated."""
    held = []
    while torch.cuda.memory_allocated() < 4.88 * 2**30:
        held += [torch.rand(10000, device="cuda") for _ in range(50)]
    return torch.cuda.memory_reserved()


def growing_tensors():
    for i in range(10):
        a = torch.rand(1000, 1000, i + 1, device="cuda:0")  # noqa: F841
    return torch.cuda.max_memory_allocated()


def large_linear():
    """The text adds model, two inputs and two outputs, and leaves out what a product of matrices works in."""
    model = nn.Linear(10_000, 50_000, device="cuda")
    for _ in range(3):
        inputs = torch.randn(5_000, 10_000, device="cuda")
        outputs = model(inputs)  # noqa: F841
    return torch.cuda.max_memory_allocated()


def chunk(single):
    import torch.nn.functional as F

    h = torch.randn(256, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(248320, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, 248320, (256,), device="cuda")
    for _ in range(2):
        h.grad = w.grad = None
        torch.cuda.reset_peak_memory_stats()
        logits = h.float() @ w.float().t() if single else (h @ w.t()).float()
        F.cross_entropy(logits, target).backward()
        del logits
    return torch.cuda.max_memory_allocated()


programs = {
    "stas-oom-forward-alloc": lambda: message(stas_forward)["allocated"],
    "stas-oom-forward-request": lambda: message(stas_forward)["request"],
    "stas-oom-backward-alloc": lambda: message(stas_backward)["allocated"],
    "stas-oom-h200-loop": lambda: tensors_of_a_gib(200),
    "stas-oom-gb300-loop": lambda: tensors_of_a_gib(500),
    "fuzz-cumsum-3090": lambda: message(cumsum)["allocated"],
    "pt-95668-linear": linear_workspace,
    "pt-112258-forward": forward_of_one_layer,
    "pt-67971-alloc": small_tensors,
    "fmassa-allocated-keep": growing_tensors,
    "hf-train-memory-linear": large_linear,
    "trl-chunk-before": lambda: chunk(True),
    "trl-chunk-after": lambda: chunk(False),
}
report(programs[name]())
