"""What forward keeps of activations for backward."""

import inspect
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from cuptimem.simulation.changes import Operator, calls
from cuptimem.simulation.changes.change import Change
from cuptimem.simulation.computed import LARGEST_INTEGER
from cuptimem.simulation.elements import Elements
from cuptimem.simulation.places import user_place

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


class OperatorsInPlace(Change):
    """The variants in place of operators that lines of the program call. value: the operators, of Operator each."""

    why_not = "the lines that a recording names do not call the operators themselves"

    def __init__(self, name: str, operators: Sequence[Operator], device: str) -> None:
        super().__init__(name, "", device)
        places = ((os.path.realpath(file), line, operator) for file, line, operator, _ in operators)
        self._arguments = dict(zip(places, (one[-1] for one in operators), strict=True))
        self._left = set(self._arguments)

    def install(self) -> None:
        mode: Any = _Calls(self)
        mode.__enter__()

    def call(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        name = getattr(function, "__name__", "")
        operator = _NAMED.get(name, name)
        if operator not in {place[-1] for place in self._arguments}:
            return function(*arguments, **keywords)
        file, line, _ = user_place(sys._getframe(2))
        place = os.path.realpath(file), line, operator
        argument = self._arguments.get(place)
        if argument is None or torch._C._current_graph_task_id() != -1:
            return function(*arguments, **keywords)
        self._left.discard(place)
        self.applied = 0 if self._left else self.applied + 1
        if getattr(function, "__module__", "") == nn.functional.__name__:
            given = inspect.signature(function).bind(*arguments, **keywords)
            given.arguments["inplace"] = True
            return function(*given.args, **given.kwargs)
        into, *others = reversed(arguments) if argument == "other" else arguments
        return getattr(into, f"{operator}_")(*others, **keywords)


_NAMED = {"relu6": "hardtanh"}  # the operator of a function with another name


class _Calls(TorchFunctionMode):
    def __init__(self, change: OperatorsInPlace) -> None:
        super().__init__()
        self._change = change

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._change.call(func, args, kwargs or {})


class Offload(Change):
    """torch.autograd.graph.save_on_cpu(pin_memory=True) around forward. Nothing is copied to the host: on this device
    only the contents of masks and indices matter. What is not contiguous is copied on the device first, as on its way
    to the host."""

    why_not = "nothing on the device is kept for backward by a model's call"

    def install(self) -> None:
        self._elements = Elements(torch)
        calls.UntilBackward(self._hooks)

    def _hooks(self) -> AbstractContextManager[Any] | None:
        if not torch.is_grad_enabled():
            return None
        self.saw(1)
        hooks: AbstractContextManager[Any] = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        return hooks

    def _pack(self, tensor: Any) -> Any:
        if not tensor.is_cuda:
            return tensor
        self.applied += 1
        tensor.detach().contiguous()
        return tensor.shape, tensor.dtype, tensor.device, self._contents(tensor)

    def _contents(self, tensor: Any) -> tuple[Any, Any] | None:
        """Of a mask or indices, as far as the device may know them."""
        counts = not (tensor.is_floating_point() or tensor.is_complex()) and tensor.layout == torch.strided
        found = self._elements.read(tensor) if counts and tensor.nbytes <= LARGEST_INTEGER else None
        return None if found is None or (found[1] is not None and found[1].all()) else found

    def _unpack(self, packed: Any) -> Any:
        if not isinstance(packed, tuple):
            return packed
        shape, dtype, device, contents = packed
        made = torch.empty(shape, dtype=dtype, device=device)
        if contents is not None:
            self._elements.write(made, *contents)
        return made
