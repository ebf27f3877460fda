"""What forward keeps of activations for backward."""

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change

_IN_PLACE = (nn.LeakyReLU, nn.ELU, nn.Hardtanh, nn.ReLU)  # ReLU6 is a Hardtanh


class InPlace(Change):
    """inplace=True of activations that have it."""

    why_not = "no LeakyReLU, ELU, Hardtanh or ReLU module without inplace=True was called"

    def install(self) -> None:
        calls.prepare(self._set)

    def _set(self) -> None:
        every = [("", one) for model in calls.models() for one in model.modules()]
        for _, module in every if self.value == "*" else calls.named(self.value):
            if isinstance(module, _IN_PLACE) and not module.inplace:
                module.inplace = True
                self.applied += 1


class Offload(Change):
    """torch.autograd.graph.save_on_cpu around forward. Nothing is copied: contents do not matter on this device."""

    why_not = "nothing on the device is kept for backward by a model's call"

    def install(self) -> None:
        calls.UntilBackward(self._hooks)

    def _hooks(self) -> AbstractContextManager[Any] | None:
        if not torch.is_grad_enabled():
            return None
        hooks: AbstractContextManager[Any] = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        return hooks

    def _pack(self, tensor: Any) -> Any:
        if not tensor.is_cuda:
            return tensor
        self.applied += 1
        return tensor.shape, tensor.dtype, tensor.device


def _unpack(packed: Any) -> Any:
    if not isinstance(packed, tuple):
        return packed
    shape, dtype, device = packed
    return torch.empty(shape, dtype=dtype, device=device)
