"""Cycles of references that Python has not collected yet."""

import gc

from torch.optim.optimizer import register_optimizer_step_post_hook

from cuptimem.simulation.changes import stepping
from cuptimem.simulation.changes.change import Change


class Collect(Change):
    """gc.collect() behind each step."""

    why_not = "no optimizer stepped"

    def install(self) -> None:
        gc.freeze()  # what was imported before: no collection would free it, and each would visit it
        register_optimizer_step_post_hook(self._collect)

    def _collect(self, *_: object) -> None:
        if stepping.is_one():
            return
        gc.collect()
        self.applied += 1
        self.saw(1)
