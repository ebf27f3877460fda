"""Parameters that nothing trains."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from cuptimem.simulation.changes import calls, parameters
from cuptimem.simulation.changes.change import Change, patch
from cuptimem.simulation.last_use import forget
from cuptimem.simulation.places import call_place, is_programs, user_place

_MOVERS = ("/torch/nn/modules/module.py", "/torch/nn/parameter.py", "/torch/_tensor.py")
_SHOWN = 2  # modules that are named


@dataclass(frozen=True, slots=True)
class _Part:
    """A module that is frozen as a whole, or a parameter of one that is not."""

    name: str
    parameters: tuple[nn.Parameter, ...]
    module: nn.Module | None = None


class Freeze(Change):
    """requires_grad_(False) of modules' parameters that no optimizer has and whose gradients nothing asks for.

    A first run of the program finds them out, and the next one has the numbers of these parameters, in the order in
    which they were made: what is called before there is an optimizer keeps a graph, too.
    """

    why_not = "each parameter that requires a gradient is in an optimizer, or there is none"

    def __init__(self, *given: str) -> None:
        super().__init__(*given)
        self._chosen = {int(one) for one in self.value.split(",") if one}
        self._trained: set[int] = set()  # ids, of parameters that optimizers keep alive
        self._asked: dict[int, str] = {}  # ids, and the line that reads or sets the gradient
        self._models: dict[int, nn.Module] = {}  # of the first run, until its end
        self._frozen: set[int] = set()
        self._names: dict[str, None] = {}

    def install(self) -> None:
        parameters.count()
        if self._chosen:
            calls.note_makers()
            calls.prepare(self._freeze)
            calls.around(self._see)
            return
        patch(Optimizer, "add_param_group", self._adding)
        calls.prepare(self._keep)
        grad: Any = torch.Tensor.grad
        asking = property(self._asking(grad.__get__), self._asking(grad.__set__), grad.__delete__)
        nn.Parameter.grad = asking  # type: ignore[assignment]  # it sees which line reads it; PyTorch's is of C

    def finish(self) -> None:
        if self._chosen or not self._trained:
            return
        numbers: list[int] = []
        for model in self._models.values():
            for part in _parts(model, lambda one: id(one) in self._trained):
                wanted = [one for one in part.parameters if one.requires_grad]
                if wanted and not self._is_asked_for(part):
                    numbers += [number for one in wanted if (number := parameters.number(one)) is not None]
        self.again = ",".join(map(str, numbers))

    def _is_asked_for(self, part: _Part) -> bool:
        if lines := [self._asked[id(one)] for one in part.parameters if id(one) in self._asked]:
            self.why_not = f"the program asks for their gradients: {lines[0]}"
        elif _has_hooks(part):
            self.why_not = "hooks of the program get their gradients"
        else:
            return False
        return True

    def _adding(self, original: Any) -> Any:
        def add_param_group(this: Any, group: Any) -> None:
            original(this, group)
            self._trained.update(id(one) for one in this.param_groups[-1]["params"])

        return add_param_group

    def _asking(self, original: Any) -> Any:
        def ask(this: Any, *value: Any) -> Any:
            frame = sys._getframe(1)
            drops = len(value) == 1 and value[0] is None
            if id(this) not in self._trained and id(this) not in self._asked and not drops and not _moves(frame):
                file, line, _ = user_place(frame)
                self._asked[id(this)] = f"{file.rpartition('/')[2]}:{line}"
            return original(this, *value)

        return ask

    def _keep(self) -> None:
        self._models.update((id(model), model) for model in calls.models())

    def _freeze(self) -> None:
        for model in calls.models():
            for part in _parts(model, lambda one: parameters.number(one) not in self._chosen):
                for parameter in part.parameters:
                    if parameter.requires_grad:
                        parameter.requires_grad_(False)
                        self._frozen.add(id(parameter))
                        self._names[_name(model) + part.name] = None
        self.applied = len(self._frozen)
        more = f" and {len(self._names) - _SHOWN} more" if len(self._names) > _SHOWN else ""
        what = ", ".join([*self._names][:_SHOWN]) + more
        self.write = f"requires_grad_(False) of {what}, before the loop: no optimizer has its parameters"

    def _see(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        if any(id(one) in self._frozen for one in module.parameters()):
            # Where it is made is where the line is written; a module that was loaded whole has none.
            self.saw_at(calls.made_at(module) or call_place(sys._getframe(1)), calls.elements(arguments, keywords))


def _parts(module: nn.Module, is_trained: Any, name: str = "") -> Iterator[_Part]:
    """The outermost modules without a parameter that is trained, and single parameters of the others."""
    # What functional_call puts in a parameter's place is none of the module's.
    every = tuple(one for one in module.parameters() if isinstance(one, nn.Parameter))
    if not any(map(is_trained, every)):
        yield _Part(name, every, module)
        return
    for own, parameter in module.named_parameters(recurse=False):
        if isinstance(parameter, nn.Parameter) and not is_trained(parameter):
            yield _Part(f"{name}.{own}", (parameter,))
    for child, inner in module.named_children():
        yield from _parts(inner, is_trained, f"{name}.{child}")


def _has_hooks(part: _Part) -> bool:
    of_parameters = ("_backward_hooks", "_post_accumulate_grad_hooks")
    of_modules = ("_backward_hooks", "_backward_pre_hooks")
    modules = part.module.modules() if part.module is not None else ()
    return any(getattr(one, name) for one in part.parameters for name in of_parameters) or any(
        getattr(one, name) for one in modules for name in of_modules
    )


def _name(model: nn.Module) -> str:
    """Of a variable that leads to it, or of its class."""
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None and not name:
        if is_programs(frame.f_code.co_filename) and "locals" not in frame.f_code.co_names:
            variables = frame.f_locals
            name = _leading_to(model, variables) or _leading_to(model, frame.f_globals)
            forget(frame, variables)
        frame = frame.f_back
    return name or type(model).__name__


def _leading_to(model: nn.Module, variables: Mapping[str, Any]) -> str:
    for name, value in variables.items():
        if value is model:
            return name
        try:
            attributes = object.__getattribute__(value, "__dict__")  # without code of the program's
        except AttributeError:
            continue
        for attribute, inner in attributes.items():
            if inner is model and not isinstance(value, ModuleType):
                return f"{name}.{attribute}"
    return ""


def _moves(frame: FrameType) -> bool:
    """Code that zeroes gradients, or that moves and copies modules with theirs."""
    code = frame.f_code
    return code.co_name == "zero_grad" or code.co_filename.endswith(_MOVERS)
