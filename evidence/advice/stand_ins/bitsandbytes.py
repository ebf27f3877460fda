"""Stands in for bitsandbytes, which a simulated device need not have: the state that its AdamW8bit allocates.

Two states of a byte an element, and for each a float32 scale per block of 256; parameters of fewer than 4,096 elements
keep float32 states. The update happens in the kernel, without temporaries.
"""

from __future__ import annotations

import types

import torch

nn = types.SimpleNamespace()  # peft looks there for layers of few bits, and finds none


class _AdamW8bit(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.maps = {}

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    self._start(p, state)
                state["step"] += 1
                p.add_(p.grad, alpha=-group["lr"])
        return loss

    def _start(self, p, state):
        state["step"] = 0
        if p.numel() < 4096:
            state["state1"], state["state2"] = torch.zeros_like(p), torch.zeros_like(p)
            return
        if p.device not in self.maps:
            self.maps[p.device] = [torch.zeros(256, device=p.device) for _ in range(2)]
        blocks = -(-p.numel() // 256)
        for name in ("1", "2"):
            state["state" + name] = torch.zeros_like(p, dtype=torch.uint8)
            state["absmax" + name] = torch.zeros(blocks, device=p.device)


class optim:
    AdamW8bit = _AdamW8bit
    Adam8bit = _AdamW8bit
