"""Half precision."""

from contextlib import AbstractContextManager
from typing import Any

import torch

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change


class Autocast(Change):
    """torch.autocast around forward and loss."""

    why_not = "no model is called, or it runs under autocast as it is"

    def install(self) -> None:
        calls.UntilBackward(self._context)

    def _context(self) -> AbstractContextManager[Any] | None:
        if torch.is_autocast_enabled(self.device):
            return None
        self.applied += 1
        context: AbstractContextManager[Any] = torch.autocast(
            self.device, torch.bfloat16 if self.value == "bf16" else torch.float16
        )
        return context
