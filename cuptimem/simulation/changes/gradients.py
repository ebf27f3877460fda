"""When gradients go."""

from typing import Any

from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from cuptimem.simulation.changes.change import Change, patch


class ZeroGradLate(Change):
    """optimizer.zero_grad(set_to_none=True) right behind each step."""

    why_not = "no optimizer stepped with gradients"

    def install(self) -> None:
        register_optimizer_step_post_hook(self._drop)

    def _drop(self, optimizer: Optimizer, *_: object) -> None:
        gone = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
        self.applied += len(gone)
        self.saw(sum(one.numel() for one in gone))
        optimizer.zero_grad(set_to_none=True)


class SetToNone(Change):
    """zero_grad(set_to_none=True) right behind each step, in a program that asks for set_to_none=False."""

    why_not = "the program does not call zero_grad(set_to_none=False)"

    def install(self) -> None:
        self._zeroed: set[int] = set()  # ids of parameters whose gradients are zeros
        for owner in (Optimizer, nn.Module):
            patch(owner, "zero_grad", self._to_none)
        register_optimizer_step_post_hook(self._drop)

    def _drop(self, optimizer: Optimizer, *_: object) -> None:
        mine = [one for group in optimizer.param_groups for one in group["params"] if id(one) in self._zeroed]
        for one in mine:
            one.grad = None

    def _to_none(self, original: Any) -> Any:
        def zero_grad(this: Any, set_to_none: bool = True) -> None:
            if not set_to_none:
                self.applied += 1
                groups = this.param_groups if isinstance(this, Optimizer) else [{"params": this.parameters()}]
                parameters = [one for group in groups for one in group["params"]]
                self._zeroed.update(map(id, parameters))
                self.write = "zero_grad() without set_to_none=False, right behind optimizer.step()"
                self.saw(sum(one.numel() for one in parameters))
            original(this, set_to_none=True)

        return zero_grad
