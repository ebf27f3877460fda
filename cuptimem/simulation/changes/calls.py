"""Outermost calls of modules, and the models that they belong to.

The change of a call of a model is put around the outermost module that the program calls: below it a model's own code
runs. Modules that backward calls again, for a checkpoint, are no calls of the program's.
"""

import contextlib
import functools
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from cuptimem.simulation import backward
from cuptimem.simulation.changes.change import patch
from cuptimem.simulation.makers import Line, maker
from cuptimem.simulation.places import Place

Around = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], AbstractContextManager[Any] | None]

_modules: "weakref.WeakValueDictionary[int, nn.Module]" = weakref.WeakValueDictionary()  # by id, as they were made
_lines: dict[int, tuple[weakref.ref[nn.Module], Line | None]] = {}  # by id: where it was made
_around: list[Around] = []
_behind: list[Callable[[nn.Module, Any], None]] = []
_prepare: list[Callable[[], None]] = []
_state = {"depth": 0, "new": 0, "hooked": 0}  # new: modules since models were prepared last


def around(make: Around) -> None:
    """make(module, arguments, keywords): what an outermost call runs in, or None."""
    _hook()
    _around.append(make)


def behind(function: Callable[[nn.Module, Any], None]) -> None:
    """function(module, result) is called behind each outermost call."""
    _hook()
    _behind.append(function)


def prepare(function: Callable[[], None]) -> None:
    """Calls it before an outermost call, once for all modules that were made until then."""
    _hook()
    _prepare.append(function)


def note_makers() -> None:
    """From now on, also where each module is made, or copied from another one."""
    _hook()
    patch(nn.Module, "__init__", _noting)
    patch(nn.Module, "__setstate__", _noting)


def made_at(module: nn.Module) -> Place | None:
    made, line = _lines.get(id(module), (None, None))
    if made is None or line is None or made() is not module:
        return None
    file, function, number = line
    return file, number, function


def _noting(original: Any) -> Any:
    def note(self: nn.Module, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        _lines[id(self)] = weakref.ref(self), maker(self)

    return note


def models() -> list[nn.Module]:
    """The modules that are in no other one."""
    living = list(_modules.values())
    inner = {id(child) for module in living for child in module._modules.values() if child is not None}
    return [module for module in living if id(module) not in inner]


def named(patterns: str) -> list[tuple[str, nn.Module]]:
    """The modules of these names, with commas between them; * stands for a part without a dot.

    A wrapper (DistributedDataParallel, torch.compile) has a part of its own in front of the names, and a program may
    hold a model below where the name begins: where no name is the pattern, one that ends with it counts, then one
    without the pattern's first parts.
    """
    every = [(name, module) for model in models() for name, module in model.named_modules() if name]
    found: dict[int, tuple[str, nn.Module]] = {}
    for pattern in patterns.split(","):
        for name, module in _matching(pattern.strip(), every):
            found.setdefault(id(module), (name, module))
    return list(found.values())


def _matching(pattern: str, every: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    while True:
        wanted = re.escape(pattern).replace(r"\*", r"[^.]*")
        for expression in (wanted, rf".*\.{wanted}"):
            found = [(name, module) for name, module in every if re.fullmatch(expression, name)]
            if found:
                return found
        _, dot, pattern = pattern.partition(".")
        if not dot or not pattern.strip("*."):
            return []


def elements(*given: Any) -> int:
    """Of all tensors among the arguments of a call."""
    return sum(one.numel() for one in _pytree.tree_leaves(given) if isinstance(one, torch.Tensor))


class UntilBackward:
    """A context that is entered with an outermost call and left when backward begins, so that the loss is in it; with
    the call's end where there are no gradients."""

    def __init__(self, make: Callable[[], AbstractContextManager[Any] | None]) -> None:
        self.given = 0  # elements of the outermost call that is under way
        self._make = make
        self._open: AbstractContextManager[Any] | None = None
        around(self._around)
        _before_backward(self.leave)

    def _around(self, module: nn.Module, *given: Any) -> AbstractContextManager[Any]:
        self.given = elements(given)
        return self._call()

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @contextlib.contextmanager
    def _call(self) -> Iterator[None]:
        if self._open is None:
            self._open = self._make()
            if self._open is not None:
                self._open.__enter__()
        try:
            yield
        except BaseException:
            self.leave()
            raise
        if not torch.is_grad_enabled():
            self.leave()

    def leave(self) -> None:
        left, self._open = self._open, None
        if left is not None:
            left.__exit__(None, None, None)


def in_backward() -> bool:
    """Whether autograd runs in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def _before_backward(function: Callable[[], None]) -> None:
    def before(name: str, original: Any) -> Any:
        @functools.wraps(original)
        def called(*arguments: Any, **keywords: Any) -> Any:
            # Else the loss is made of what comes now.
            if not backward.asks(name, "create_graph", arguments, keywords):
                function()
            return original(*arguments, **keywords)

        return called

    for name in backward.PASSES:
        patch(torch.autograd, name, functools.partial(before, name))


def _hook() -> None:
    if not _state["hooked"]:
        _state["hooked"] = 1
        patch(nn.Module, "__call__", _called)
        patch(nn.Module, "__init__", _made)


def _made(original: Any) -> Any:
    def init(self: nn.Module, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        _add(self)

    return init


def _add(module: nn.Module) -> None:
    if _modules.get(id(module)) is not module:
        _modules[id(module)] = module
        _state["new"] += 1


def _called(original: Any) -> Any:
    def call(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        if _state["depth"] or in_backward() or isinstance(self, nn.modules.loss._Loss):
            return original(self, *arguments, **keywords)
        _add(self)  # a copy, or one that was loaded, has been made without its __init__
        if _state["new"]:
            _state["new"] = 0
            for function in _prepare:
                function()
        _state["depth"] += 1
        try:
            with contextlib.ExitStack() as stack:
                for make in _around:
                    context = make(self, arguments, keywords)
                    if context is not None:
                        stack.enter_context(context)
                result = original(self, *arguments, **keywords)
                for note in _behind:
                    note(self, result)
                return result
        finally:
            _state["depth"] -= 1

    return call
