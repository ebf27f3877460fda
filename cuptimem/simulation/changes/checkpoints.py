"""Checkpoints of modules: forward again in backward."""

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Checkpoint(Change):
    """torch.utils.checkpoint, without reentry, around the modules of these names; else around the repeated blocks."""

    def install(self) -> None:
        self.why_not = f"no module {self.value} is called in training" if self.value else "no block repeats in a model"
        calls.prepare(self._wrap)

    def _wrap(self) -> None:
        chosen = [module for _, module in calls.named(self.value)] if self.value else _repeated()
        for module in chosen:
            if not hasattr(module.forward, "checkpointed"):
                module.forward = self._wrapped(module, module.forward)

    def _wrapped(self, module: nn.Module, forward: Any) -> Any:
        @functools.wraps(forward)
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            if not (torch.is_grad_enabled() and module.training):
                return forward(*arguments, **keywords)
            if not calls.in_backward():
                self.applied += 1
            return checkpoint(forward, *arguments, use_reentrant=False, **keywords)

        wrapped.checkpointed = True  # type: ignore[attr-defined]
        return wrapped


def _repeated() -> list[nn.Module]:
    """The blocks of each model: of the classes that repeat in it, which are neither layers nor containers, the one
    with the most parameters; of two with as many the outer one. Those inside of others of their class are left out."""
    found: list[nn.Module] = []
    for model in calls.models():
        classes: dict[type, list[nn.Module]] = defaultdict(list)
        for module in model.modules():
            if module is not model and module._modules and not isinstance(module, _CONTAINERS):
                classes[type(module)].append(module)
        blocks = [_outermost(modules) for modules in classes.values()]
        blocks = [modules for modules in blocks if len(modules) > 1]
        if blocks:
            found += max(blocks, key=_parameters)  # the first of equals: modules() has the outer ones first
    return found


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    inner = {id(one) for module in modules for one in module.modules() if one is not module}
    return [module for module in modules if id(module) not in inner]


def _parameters(modules: Iterable[nn.Module]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
