"""The step of every optimizer: what takes its place, and what comes around it.

PyTorch wraps the step of a class when the first optimizer of it is made (for its hooks); there ours are put in, so
that classes of the program and of libraries have them as well as PyTorch's own.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from cuptimem.simulation.changes.change import patch

Step = Callable[..., Any]

_replacement: list[Step] = []
_around: list[Callable[[Any, Callable[[], Any], tuple[Any, ...], dict[str, Any]], Any]] = []
_made: list[Callable[[Optimizer], None]] = []
_one: list[Any] = []
_hooked: list[bool] = []


def replace(step: Step) -> None:
    """step(optimizer, closure=None) is what each optimizer does."""
    _hook()
    _replacement.append(step)


def around(function: Callable[[Any, Callable[[], Any], tuple[Any, ...], dict[str, Any]], Any]) -> None:
    """function(optimizer, step, arguments, keywords) is called for each step of the program's; hooks run in step()."""
    _hook()
    _around.append(function)


def made(function: Callable[[Optimizer], None]) -> None:
    """Called with each optimizer when its parameters are known."""
    _hook()
    _made.append(function)


def step_one(optimizer: Any, group: dict[str, Any], parameter: Any) -> None:
    """Steps one parameter alone."""
    groups, members = optimizer.param_groups, group["params"]
    group["params"], optimizer.param_groups = [parameter], [group]
    _one.append(parameter)
    try:
        type(optimizer).step(optimizer)
    finally:
        _one.pop()
        group["params"], optimizer.param_groups = members, groups


def is_one() -> bool:
    """Whether the step under way is of one parameter alone, and none of the program's."""
    return bool(_one)


def loss_of(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def _hook() -> None:
    if not _hooked:
        _hooked.append(True)
        patch(Optimizer, "_patch_step_function", _patched)
        patch(Optimizer, "__init__", _with_made)


def _with_made(original: Any) -> Any:
    def init(self: Optimizer, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        for function in _made:
            function(self)

    return init


def _patched(original: Any) -> Any:
    def patch_step(self: Optimizer) -> None:
        original(self)
        cls: Any = type(self)
        step = cls.step
        if getattr(step, "tried", False):  # also of the class that this one inherits its step from
            return
        for replacement in _replacement:
            step = self.profile_hook_step(replacement)
        for function in _around:
            step = _wrapped(step, function)
        step.hooked = step.tried = True
        cls.step = step

    return patch_step


def _wrapped(step: Step, function: Callable[..., Any]) -> Any:
    @functools.wraps(step)
    def called(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return function(self, lambda: step(self, *arguments, **keywords), arguments, keywords)

    return called
