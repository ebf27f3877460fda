# Out-of-memory messages of GPT-2: transformers' language modelling examples of 2020, and nanoGPT.
# "then" as a second argument: softmax and log_softmax keep their inputs, as PyTorch did before 1.11.
import sys

import torch
import torch.nn.functional as F
from measure import figure, message, report

name = figure()
then = "then" in sys.argv[2:]


def saved_input(function, derivative):
    class OfThen(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, dim):
            y = function(x, dim)
            ctx.save_for_backward(x, y)
            ctx.dim = dim
            return y

        @staticmethod
        def backward(ctx, gradient):
            x, y = ctx.saved_tensors
            return derivative(gradient, y, ctx.dim, x.dtype), None

    return OfThen.apply


def transformers_example(batch):
    from transformers import GPT2Config, GPT2LMHeadModel

    if then:
        softmax = saved_input(torch.softmax, torch._softmax_backward_data)
        log_softmax = saved_input(torch.log_softmax, torch._log_softmax_backward_data)
        F.softmax = lambda x, dim=-1, dtype=None: softmax(x, dim)
        torch.nn.functional.softmax = F.softmax
        F.cross_entropy = lambda x, y, **_: F.nll_loss(log_softmax(x, 1), y)
        torch.nn.functional.cross_entropy = F.cross_entropy
    model = GPT2LMHeadModel(GPT2Config(attn_implementation="eager")).to("cuda")
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, foreach=False)
    for _ in range(3):
        inputs = torch.randint(0, 50257, (batch, 1024)).to("cuda")
        if then:
            logits = model(inputs).logits
            shifted = logits[..., :-1, :].contiguous()
            loss = F.cross_entropy(shifted.view(-1, shifted.size(-1)), inputs[..., 1:].contiguous().view(-1))
        else:
            loss = model(inputs, labels=inputs).loss
        loss.backward()
        optimizer.step()
        model.zero_grad(set_to_none=not then)


class Block(torch.nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1 = torch.nn.LayerNorm(width)
        self.c_attn = torch.nn.Linear(width, 3 * width)
        self.c_proj = torch.nn.Linear(width, width)
        self.ln_2 = torch.nn.LayerNorm(width)
        self.c_fc = torch.nn.Linear(width, 4 * width)
        self.c_proj_2 = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(c, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        x = x + F.dropout(self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c)), self.dropout, self.training)
        return x + F.dropout(self.c_proj_2(F.gelu(self.c_fc(self.ln_2(x)))), self.dropout, self.training)


class NanoGPT(torch.nn.Module):
    def __init__(self, layers, heads, width, vocabulary, dropout=0.0):
        super().__init__()
        self.wte = torch.nn.Embedding(vocabulary, width)
        self.wpe = torch.nn.Embedding(1024, width)
        self.h = torch.nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = torch.nn.LayerNorm(width)
        self.lm_head = torch.nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


def nanogpt(layers, heads, width, vocabulary, batch, accumulate, fused=True):
    with torch.device("cuda"):
        model = NanoGPT(layers, heads, width, vocabulary)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=fused)
    autocast = torch.amp.autocast(device_type="cuda", dtype=torch.bfloat16)

    def data():
        return (torch.randint(0, vocabulary, (batch, 1024)).pin_memory().to("cuda", non_blocking=True) for _ in "xy")

    x, y = data()
    with torch.no_grad():
        model.eval()
        for _ in range(2):  # estimate_loss
            a, b = data()
            with autocast:
                model(a, b)[1].item()
        model.train()
    for _ in range(2):
        for _ in range(accumulate):
            with autocast:
                logits, loss = model(x, y)
                loss = loss / accumulate
            x, y = data()
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


programs = {
    "tf-3360-gpt2-b4": lambda: transformers_example(4),
    "tf-7177-gpt2-b8": lambda: transformers_example(8),
    "tf-9090-gpt2-b8": lambda: transformers_example(8),
    "nanogpt-88-b32": lambda: nanogpt(12, 12, 768, 50304, 32, 1),
    "nanogpt-208-xl": lambda: nanogpt(48, 25, 1600, 50257, 1, 2),
}
if name == "tf-9090-gpt2-b8":  # a verdict
    programs[name]()
else:
    report(message(programs[name])["allocated"])
