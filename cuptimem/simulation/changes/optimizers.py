"""What optimizers hold: states, temporaries, and gradients until they step."""

from collections import defaultdict
from typing import Any

import torch
import torch.nn.utils.clip_grad as clipping
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from cuptimem.simulation.changes import stepping
from cuptimem.simulation.changes.change import Change, patch, refuse

_BLOCK = 256  # elements with one scale, and the least of a parameter whose states are bytes, as bitsandbytes has them
_LEAST = 4096


class _Settings(Change):
    """Sets values of an optimizer's groups before it steps."""

    wanted: dict[str, bool]

    def install(self) -> None:
        register_optimizer_step_pre_hook(self._set)

    def _set(self, optimizer: Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            if self._can(group):
                group.update({name: value for name, value in self.wanted.items() if name in group})
                self.applied += 1
                self.saw(sum(one.numel() for one in group["params"]))

    def _can(self, group: dict[str, Any]) -> bool:
        raise NotImplementedError


class Fused(_Settings):
    """fused=True."""

    why_not = "no optimizer without fused=True that could have it stepped"
    wanted = {"fused": True, "foreach": False}

    def _set(self, optimizer: Optimizer, *arguments: object) -> None:
        super()._set(optimizer, *arguments)
        for group in optimizer.param_groups:
            for parameter in group["params"] if group.get("fused") else ():
                step = optimizer.state[parameter].get("step") if parameter in optimizer.state else None
                if isinstance(step, torch.Tensor):  # Adagrad has made it by now, where steps are not fused
                    optimizer.state[parameter]["step"] = step.to(parameter.device, torch.float32)

    def _can(self, group: dict[str, Any]) -> bool:
        return "fused" in group and not group["fused"]


class NoForeach(_Settings):
    """foreach=False: one parameter after the other."""

    why_not = "no optimizer stepped that works on all parameters together"
    wanted = {"foreach": False}

    def _can(self, group: dict[str, Any]) -> bool:
        chosen = group.get("foreach", False)
        if chosen is None:  # then PyTorch takes it on a GPU, unless the step is fused
            return self.device == "cuda" and not group.get("fused")
        return bool(chosen)


def _with_gradient(optimizer: Optimizer) -> list[tuple[dict[str, Any], list[Any]]]:
    return [(group, [one for one in group["params"] if one.grad is not None]) for group in optimizer.param_groups]


def _without_states() -> None:
    """Adagrad makes its states when it is made, which an optimizer in its place does not have."""

    def patched(original: Any) -> Any:
        def init(self: Optimizer, *arguments: Any, **keywords: Any) -> None:
            original(self, *arguments, **keywords)
            self.state.clear()

        return init

    patch(torch.optim.Adagrad, "__init__", patched)


class Sgd(Change):
    """torch.optim.SGD(parameters, lr), without momentum, in the place of each optimizer."""

    why_not = "no optimizer stepped"

    def install(self) -> None:
        _without_states()

        @torch.no_grad()
        def step(optimizer: Optimizer, closure: Any = None) -> Any:
            loss = stepping.loss_of(closure)
            for _, parameters in _with_gradient(optimizer):
                self.applied += len(parameters)
                self.saw(sum(one.numel() for one in parameters))
                if parameters:
                    torch._foreach_add_(parameters, [one.grad for one in parameters], alpha=-1e-3)
            return loss

        stepping.replace(step)


class Adam8bit(Change):
    """An Adam with states of a byte an element, and a scale for each 256 of them, in the place of each optimizer."""

    why_not = "no optimizer stepped"

    def install(self) -> None:
        _without_states()

        @torch.no_grad()
        def step(optimizer: Optimizer, closure: Any = None) -> Any:
            loss = stepping.loss_of(closure)
            for _, parameters in _with_gradient(optimizer):
                for parameter in parameters:
                    self.applied += 1
                    self.saw(parameter.numel())
                    state = optimizer.state[parameter]
                    if not state:
                        state.update(_states(parameter))
                    parameter.add_(parameter.grad, alpha=-1e-3)  # as a fused kernel does: no temporaries
            return loss

        stepping.replace(step)


def _states(parameter: Any) -> dict[str, Any]:
    size, made = parameter.numel(), {}
    for name in ("state1", "state2"):
        if size < _LEAST:
            made[name] = torch.zeros(size, dtype=torch.float32, device=parameter.device)
            continue
        made[name] = torch.empty(size, dtype=torch.uint8, device=parameter.device)  # nothing reads it
        made[f"absmax of {name}"] = torch.zeros(-(-size // _BLOCK), dtype=torch.float32, device=parameter.device)
    return made


class StepInBackward(Change):
    """Each parameter is stepped, and its gradient dropped, as soon as it is complete."""

    why_not = "no optimizer got a gradient"

    def install(self) -> None:
        # Parameters that have had their gradient since the last step, by optimizer.
        self._complete: dict[int, set[int]] = defaultdict(set)
        stepping.made(self._hook)
        stepping.around(self._step)
        for name in ("_get_total_norm", "get_total_norm"):
            if hasattr(clipping, name):
                patch(clipping, name, lambda _: _clips)
        patch(nn.parallel.DistributedDataParallel, "__init__", lambda _: _reduces)

    def _hook(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    self._hook_one(optimizer, group, parameter)

    def _hook_one(self, optimizer: Any, group: dict[str, Any], parameter: Any) -> None:
        def complete(_: Any) -> None:
            if id(parameter) in self._complete[id(optimizer)]:
                refuse("a parameter gets gradients of several backward passes before its optimizer steps")
            self._complete[id(optimizer)].add(id(parameter))
            stepping.step_one(optimizer, group, parameter)
            parameter.grad = None
            self.applied += 1

        parameter.register_post_accumulate_grad_hook(complete)

    def _step(self, optimizer: Any, step: Any, *_: object) -> Any:
        if not stepping.is_one():
            self.saw(len(self._complete.pop(id(optimizer), ())))
        return step()


def _reduces(*_: object, **__: object) -> None:
    refuse("its gradients are reduced over processes before a step")


def _clips(*_: object, **__: object) -> Any:
    refuse("it clips by the norm of all gradients, which are never there together then")
