"""Half precision."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change, patch


class Autocast(Change):
    """torch.autocast around forward and loss; in a program with an optimizer around those of training alone."""

    why_not = "no model is called, or it runs under autocast as it is"
    _learns = False

    def install(self) -> None:
        self._until = calls.UntilBackward(self._context)
        patch(torch.optim.Optimizer, "__init__", self._learning)

    def _learning(self, original: Any) -> Any:
        def init(*arguments: Any, **keywords: Any) -> None:
            self._learns = True
            original(*arguments, **keywords)

        return init

    def _context(self) -> AbstractContextManager[Any] | None:
        if torch.is_autocast_enabled(self.device) or (self._learns and not torch.is_grad_enabled()):
            return None
        self.applied += 1
        dtype = torch.bfloat16 if self.value == "bf16" else torch.float16
        self.write = f"with torch.autocast({self.device!r}, dtype={dtype}): around forward and loss"
        self.saw(self._until.given)
        context: AbstractContextManager[Any] = torch.autocast(self.device, dtype)
        return context
