"""Checkpoints of modules: forward again in backward."""

import functools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change, patch

_SEGMENTED = 3  # members: sqrt(3) is two segments
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class Checkpoint(Change):
    """torch.utils.checkpoint, without reentry, around the modules of these names; else around the repeated blocks.

    A model without such has its longest Sequential in as many segments as the root of its members.
    """

    def install(self) -> None:
        self.why_not = (
            f"no module {self.value} is called with autograd on"
            if self.value
            else "no block repeats in a model, and no Sequential has three members"
        )
        calls.prepare(self._wrap)

    def _wrap(self) -> None:
        if self.value:
            self._wrap_all(module for _, module in calls.named(self.value))
            return
        for model in calls.models():
            blocks = _repeated(model)
            self._wrap_all(blocks)
            stack = None if blocks else _longest(model)
            if stack is not None and not hasattr(stack.forward, "checkpointed"):
                patch(stack, "forward", functools.partial(self._in_segments, stack))

    def _wrap_all(self, modules: Iterable[nn.Module]) -> None:
        for module in modules:
            if hasattr(module.forward, "checkpointed"):
                continue
            if hasattr(module, "gradient_checkpointing"):
                if not module.gradient_checkpointing:  # else it is on: the program's own doing, or an earlier call's
                    self._switch_on(module)
            else:
                module.forward = self._wrapped(module, module.forward)

    def _switch_on(self, module: Any) -> None:
        """A layer of transformers knows how, in training alone: it gets no cache, which forward in backward would fill
        a second time."""

        def function(forward: Any, *arguments: Any, **keywords: Any) -> Any:
            if not calls.in_backward():
                self.applied += 1
                self.saw(1)
            return checkpoint(forward, *arguments, use_reentrant=False, **keywords)

        module.gradient_checkpointing, module._gradient_checkpointing_func = True, function
        for model in calls.models():
            parts: list[Any] = list(model.modules())
            if any(part is module for part in parts):
                for part in parts:  # models make no cache either: theirs is no attribute of the class
                    if "gradient_checkpointing" in vars(part):
                        part.gradient_checkpointing, part._gradient_checkpointing_func = True, function

    def _in_segments(self, stack: nn.Sequential, forward: Any) -> Any:
        segments = round(len(stack) ** 0.5)

        def wrapped(x: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(x)
            self.applied += segments - 1  # the last one is not computed again
            self.saw(1)
            in_segments: Any = checkpoint_sequential
            return in_segments(list(stack), segments, x, use_reentrant=False)

        wrapped.checkpointed = True  # type: ignore[attr-defined]
        return wrapped

    def _wrapped(self, module: nn.Module, forward: Any) -> Any:
        @functools.wraps(forward)
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*arguments, **keywords)
            if not calls.in_backward():
                self.applied += 1
                self.saw(1)
            return checkpoint(forward, *arguments, use_reentrant=False, **keywords)

        wrapped.checkpointed = True  # type: ignore[attr-defined]
        return wrapped


def _repeated(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model: of the classes that repeat in it, which are neither layers nor containers, the one with
    the most parameters; of two with as many the outer one. Those inside of others of their class are left out."""
    classes: dict[type, list[nn.Module]] = defaultdict(list)
    for module in model.modules():
        if module is not model and module._modules and not isinstance(module, _CONTAINERS):
            classes[type(module)].append(module)
    blocks = [_outermost(modules) for modules in classes.values()]
    # The first of equals: modules() has the outer ones first.
    return max((modules for modules in blocks if len(modules) > 1), key=_parameters, default=[])


def _longest(model: nn.Module) -> nn.Sequential | None:
    """The Sequential with the most members, if there are enough of them for two segments."""
    stacks = [module for module in model.modules() if isinstance(module, nn.Sequential) and len(module) >= _SEGMENTED]
    return max(stacks, key=len, default=None)


def _outermost(modules: list[nn.Module]) -> list[nn.Module]:
    inner = {id(one) for module in modules for one in module.modules() if one is not module}
    return [module for module in modules if id(module) not in inner]


def _parameters(modules: Iterable[nn.Module]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())
