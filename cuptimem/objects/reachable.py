"""Tensors that are reachable from some objects.

Objects are read through the garbage collector and through descriptors of built-in types alone: no property,
`__getattr__` or `__class__` of the program runs. Every search ends after a number of objects.
"""

from __future__ import annotations

import collections
import gc
import types
from collections.abc import Callable, Iterable
from typing import Any

from cuptimem.errors import own
from cuptimem.objects import living


def owner(kind: type) -> str:
    """The module that a class names as its own; "" for none."""
    name = type.__dict__["__dict__"].__get__(kind).get("__module__")
    return name if type(name) is str else ""


def _below(one: Any) -> Iterable[Any]:
    kind = type(one)
    if kind is types.FunctionType:  # not its globals, which lead to all of its module
        return [*one.__dict__.values(), *(one.__closure__ or ()), one.__defaults__, one.__kwdefaults__]
    if issubclass(kind, type):
        return list(type.__dict__["__dict__"].__get__(one).values())  # not its subclasses, which are the program's
    return gc.get_referents(one)


class Tensors:
    """Finds the tensors below some objects."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._base = torch._C.TensorBase
        self._is_copied_lazily = getattr(torch._C, "_is_cow_tensor", lambda tensor: False)
        self._without_overrides = torch._C.DisableTorchFunctionSubclass

    def below(
        self, roots: Iterable[Any], enter: Callable[[Any], bool], most: int, seen: dict[int, Any]
    ) -> dict[int, int]:
        """Addresses of their storages, and the bytes of each.

        seen: visited objects by id; kept alive, so that no id is used twice.
        """
        found: dict[int, int] = {}
        left = collections.deque(roots)
        with self._without_overrides():
            while left and len(seen) < most:
                one = left.popleft()
                if not gc.is_tracked(one) or id(one) in seen:  # what refers to nothing is not tracked
                    continue
                if issubclass(type(one), self._tensor):
                    seen[id(one)] = one
                    found.update(self._storages(one))
                    left.extend(gc.get_referents(one))
                    if self._base.is_leaf.__get__(one):
                        left.extend(living.gradients(self._torch, [one]) or ())
                elif enter(one):
                    seen[id(one)] = one
                    left.extend(_below(one))
        return found

    def _storages(self, tensor: Any) -> dict[int, int]:
        try:
            if self._is_copied_lazily(tensor):  # asking for the address would copy
                return {}
            storage = self._base.untyped_storage(tensor)
            if storage.device.type == "meta":  # of a fake tensor: it would warn
                return {}
            return {storage.data_ptr(): storage.nbytes()}
        except own(RuntimeError, NotImplementedError):  # functional, sparse
            return {}
