"""What a program's tensors take, from its own objects alone: nothing here uses cuptimem.

A storage counts once, for the first of these that has it: parameter, buffer, gradient, optimizer state, input. What
else is alive between forward and backward, in a variable or in the graph, is an activation.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

CUDA_ROUNDS_TO = 512


@dataclass
class Account:
    """Bytes by category, by module, and what each block of a model or an optimizer is."""

    bytes: dict[str, int] = field(default_factory=dict)
    modules: dict[str, dict[str, int]] = field(default_factory=dict)  # category -> module -> bytes
    tensors: list[tuple[str, str, str, tuple[int, ...], int]] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)  # storages

    def add(self, category: str, tensor: torch.Tensor, name: str = "", module: str = "") -> None:
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0 or storage.data_ptr() in self.taken:
            return
        self.taken.add(storage.data_ptr())
        size = block_size(storage)
        self.bytes[category] = self.bytes.get(category, 0) + size
        of = self.modules.setdefault(category, {})
        of[module] = of.get(module, 0) + size
        if name:
            dtype = str(tensor.dtype).removeprefix("torch.")
            self.tensors.append((category, name, dtype, tuple(tensor.shape), size))


def block_size(storage: torch.UntypedStorage) -> int:
    if storage.device.type == "cpu":
        return storage.nbytes()
    return -(-storage.nbytes() // CUDA_ROUNDS_TO) * CUDA_ROUNDS_TO


def named(models: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, str, str]]:
    """Each module with its name and what the names of its tensors begin with. Of several models with tensors each
    name begins with its model's class; of two of one class the second has a number."""
    models = list(models)
    several = sum(1 for model in models if any(True for _ in (*model.parameters(), *model.buffers()))) > 1
    seen: dict[str, int] = {}
    for model in models:
        name = type(model).__name__
        seen[name] = seen.get(name, 0) + 1
        root = name if seen[name] == 1 else f"{name}#{seen[name]}"
        before = f"{root}." if several else ""
        for path, module in model.named_modules():
            yield module, before + path if path else root, f"{before}{path}." if path else before


def of_objects(models: Iterable[nn.Module], optimizers: Iterable[Any], inputs: Iterable[torch.Tensor]) -> Account:
    """Everything but activations, as it is alive now on the device of the models."""
    models, optimizers = list(models), list(optimizers)
    found, device = Account(), next(models[0].parameters()).device
    parameters: dict[int, tuple[torch.Tensor, str, str]] = {}
    buffers: list[tuple[torch.Tensor, str, str]] = []
    for module, name, before in named(models):
        for key, parameter in module._parameters.items():
            if parameter is not None:
                parameters.setdefault(id(parameter), (parameter, before + key, name))
        buffers += [(buffer, before + key, name) for key, buffer in module._buffers.items() if buffer is not None]
    for tensor, key, name in parameters.values():
        found.add("parameter", tensor, key, name)
    for tensor, key, name in buffers:
        found.add("buffer", tensor, key, name)
    for tensor, key, name in parameters.values():
        if tensor.grad is not None:
            found.add("gradient", tensor.grad, key, name)
    for optimizer in optimizers:
        for parameter, state in optimizer.state.items():
            _, key, name = parameters[id(parameter)]
            for slot, value in state.items():
                if isinstance(value, torch.Tensor) and value.device == device:
                    found.add("optimizer state", value, f"{slot} of {key}", name)
    for tensor in inputs:
        found.add("input", tensor)
    return found


def add_living(account: Account, device: torch.device, made: Made, category: str) -> None:
    """What else is alive as a Python object: activations, where there is a graph."""
    for tensor in living():
        if tensor.device == device:
            account.add(made.casts.get(tensor.untyped_storage()._cdata, category), tensor, module=made.of(tensor))


def living() -> list[torch.Tensor]:
    """Every tensor that is a Python object."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]


class Made:
    """In which module's call each storage was made. A reference to each keeps its number its own."""

    def __init__(self) -> None:
        self._modules: dict[int, tuple[StorageWeakRef, str]] = {}
        self.casts: dict[int, str] = {}  # of parameters, by autocast: their category

    def of(self, tensor: torch.Tensor) -> str:
        return self._modules.get(tensor.untyped_storage()._cdata, (None, ""))[1]

    def note(self, tensor: torch.Tensor, module: str) -> None:
        """The first note of a storage counts."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._modules:
            self._modules[storage._cdata] = StorageWeakRef(storage), module


class Watched:
    """A forward pass whose saved tensors are Python objects, and of which is known what each module made."""

    def __init__(self, models: Iterable[nn.Module], forward: Callable[..., Any]) -> None:
        self.made = Made()
        self._names = {id(module): name for module, name, _ in named(models)}
        self._forward = forward

    def __call__(self, *batch: torch.Tensor) -> Any:
        makers = Makers(self._names)
        with makers, torch.autograd.graph.saved_tensors_hooks(makers.pack, lambda tensor: tensor):
            result = self._forward(*batch)
        self.made = makers.made
        return result


class Makers(TorchDispatchMode):
    """In which module's call each storage was made: the first in which an operator or autograd has it."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.made = Made()
        self._names = names
        self._running: list[str] = []
        self._hooks: list[Any] = []

    def __enter__(self) -> Makers:
        of = nn.modules.module
        self._hooks = [
            of.register_module_forward_pre_hook(lambda module, _: self._enter(module)),
            of.register_module_forward_hook(lambda module, *_: self._leave(module), always_call=True),
        ]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for hook in self._hooks:
            hook.remove()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in _tensors((args, kwargs)):
            self.made.note(tensor, self._innermost())
        result = function(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self.made.note(tensor, self._innermost())
        if function is torch.ops.aten._to_copy.default and isinstance(args[0], nn.Parameter):
            self.made.casts[result.untyped_storage()._cdata] = "autocast cache"
        return result

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.made.note(tensor, self._innermost())
        return tensor.detach()

    def _innermost(self) -> str:
        return self._running[-1] if self._running else ""

    def _enter(self, module: nn.Module) -> None:
        self._look(module)
        self._running.append(self._names[id(module)])

    def _leave(self, module: nn.Module) -> None:
        self._look(module)
        self._running.pop()

    def _look(self, module: nn.Module) -> None:
        """For what no operator shows: a generator's state, the tensor of a number."""
        if self._running and any(True for _ in module.children()):
            for tensor in living():
                self.made.note(tensor, self._innermost())


def _tensors(item: Any) -> Iterator[torch.Tensor]:
    if isinstance(item, torch.Tensor):
        yield item
    elif isinstance(item, (list, tuple)):
        for part in item:
            yield from _tensors(part)
    elif isinstance(item, dict):
        yield from _tensors(list(item.values()))
