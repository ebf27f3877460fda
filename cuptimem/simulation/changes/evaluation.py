"""What an evaluation keeps."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change, patch


class NoGrad(Change):
    """torch.no_grad() around calls of models in evaluation mode, unless a gradient is to go through them."""

    why_not = "no model is called in evaluation mode while autograd is on"

    def install(self) -> None:
        calls.around(self._around)

    def _around(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> AbstractContextManager[Any] | None:
        if module.training or not torch.is_grad_enabled():
            return None
        given = _pytree.tree_leaves((arguments, keywords))
        if any(isinstance(one, torch.Tensor) and one.requires_grad for one in given):
            return None
        self.applied += 1
        self.write = "with torch.no_grad(): around this line"
        self.saw(calls.elements(given))
        return torch.no_grad()


class KeepEvaluation(Change):
    """Trainer's eval_accumulation_steps=1: what an evaluation gathers goes to the host after each step."""

    why_not = "no evaluation of a transformers Trainer gathers outputs on the device"

    def install(self) -> None:
        try:
            trainer: Any = import_module("transformers.trainer").Trainer
        except ImportError:  # then the program has no Trainer either
            return
        patch(trainer, "evaluation_loop", self._kept_short)

    def _kept_short(self, original: Any) -> Any:
        def evaluation_loop(this: Any, *arguments: Any, **keywords: Any) -> Any:
            if this.args.eval_accumulation_steps is None:
                this.args.eval_accumulation_steps = 1
                self.applied += 1
            return original(this, *arguments, **keywords)

        return evaluation_loop
