"""Half precision."""

import functools
import inspect
import json
import os
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from cuptimem.simulation.changes import calls, stepping
from cuptimem.simulation.changes.change import Change, patch
from cuptimem.simulation.makers import before_trainer, maker
from cuptimem.simulation.places import Place, all_places, call_place, is_programs
from cuptimem.trainer_settings import Trainer, trainer_of

_CALLS = ";calls="  # behind the value: which calls of models are of training, by where they are, as JSON
_PLAIN = (None, "no", 32, "32", "32-true")  # precisions


class Autocast(Change):
    """torch.autocast around forward and loss; in a program with an optimizer around those of training alone.

    Training are calls through whose results a gradient goes, and those between most steps, such as a teacher's. A run
    finds out which these are; where they are others than those with gradients, it is tried once more with them.
    """

    why_not = "no model is called, or it runs under autocast as it is"

    def __init__(self, name: str, value: str, device: str) -> None:
        precision, _, known = value.partition(_CALLS)
        super().__init__(name, precision, device)
        self._known: dict[str, bool] | None = json.loads(known) if known else None
        self._learns = False
        self._has_accelerator = False
        self._trainers: set[str] = set()  # names of those that have the precision in their settings
        self._with_graph: dict[str, bool] = {}  # by call: whether autograd is on
        self._learnt: set[str] = set()  # calls
        self._called_for: Counter[str] = Counter()  # by call: steps before which it was made
        self._called_now: set[str] = set()  # since the last step
        self._steps = 0
        self._call = ""  # that is under way
        self._of_call: dict[str, Place] = {}  # where the context began with it
        self._line = self._opened = ""  # the program's: of that call, and of that with which the context began

    def install(self) -> None:
        calls.around(self._note)
        calls.behind(self._hooked)
        self._until = calls.UntilBackward(self._context)
        patch(torch.optim.Optimizer, "__init__", self._learning)
        stepping.around(self._step)
        before_trainer("transformers", self._arguments_made)
        before_trainer("lightning", self._lightning_made)
        if (accelerator := getattr(sys.modules.get("accelerate"), "Accelerator", None)) is not None:
            patch(accelerator, "__init__", self._accelerating)

    @property
    def place(self) -> Place | None:
        """Of those through which gradients went, if there are any."""
        learnt = {self._of_call[call] for call in self._learnt & self._of_call.keys()} or self._weights.keys()
        return max(learnt, key=lambda one: self._weights.get(one, 0), default=None)

    def finish(self) -> None:
        if self._known is not None or not self._learns or not self._steps:
            return
        often = {call for call, steps in self._called_for.items() if 2 * steps >= self._steps}
        known = {call: call in self._learnt or call in often for call in self._with_graph}
        if known != self._with_graph:
            self.again = f"{self.value}{_CALLS}{json.dumps(known)}"

    def _arguments_made(self, trainer: Trainer, made: Any, keywords: dict[str, Any]) -> None:
        if not (made.bf16 or made.fp16):
            setattr(made, self.value, True)
            self._set(trainer, made)

    def _lightning_made(self, trainer: Trainer, made: Any, keywords: dict[str, Any]) -> None:
        if keywords.get("precision") in _PLAIN:
            keywords["precision"] = f"{self.value.removeprefix('fp')}-mixed"
            self._set(trainer, made)

    def _set(self, trainer: Trainer, made: Any) -> None:
        self._trainers.add(trainer.name)
        self.applied += 1
        self.write = trainer.write("autocast", is_made=True) if self.value == "bf16" else self.write
        line = maker(made)
        self.saw_at((line[0], line[2], line[1]) if line is not None else None, 1)

    def _accelerating(self, original: Any) -> Any:
        """An Accelerator has its own autocast, around each call of a model, with outputs in 32 bits."""

        @functools.wraps(original)
        def init(this: Any, *arguments: Any, **keywords: Any) -> None:
            given = inspect.signature(original).bind(this, *arguments, **keywords)
            # One that transformers makes has the precision of its Trainer. All of a process share one state.
            is_own = is_programs(sys._getframe(1).f_code.co_filename) and not _is_accelerating()
            if given.arguments.get("mixed_precision") in _PLAIN and (is_own or self._has_accelerator):
                given.arguments["mixed_precision"] = self.value
                self._has_accelerator = True
                self.applied += 1
                self.write = f'Accelerator(mixed_precision="{self.value}")'
                self.saw(1)
            original(*given.args, **given.kwargs)

        return init

    def _learning(self, original: Any) -> Any:
        def init(*arguments: Any, **keywords: Any) -> None:
            self._learns = True
            original(*arguments, **keywords)

        return init

    def _step(self, optimizer: Any, step: Any, arguments: Any, keywords: Any) -> Any:
        if not stepping.is_one():
            self._steps += 1
            self._called_for.update(self._called_now)
            self._called_now.clear()
        return step()

    def _note(self, module: nn.Module, *given: Any) -> AbstractContextManager[Any]:
        places = [f"{file}:{line}" for file, line, _ in all_places(sys._getframe(1)) if is_programs(file)]
        with_graph = torch.is_grad_enabled()
        self._call = " ".join([*places, str(with_graph)])
        self._with_graph[self._call] = with_graph
        self._called_now.add(self._call)
        self._line = places[0] if places else ""
        if not self._learns and self._line == self._opened:  # no backward pass ends it, but the loop begins again
            self._until.leave()
        if not self._is_covered and torch.is_autocast_enabled(self.device) and self._until.is_open:
            return torch.autocast(self.device, enabled=False)  # in the midst of a step
        return nullcontext()

    def _hooked(self, module: nn.Module, result: Any) -> None:
        """Where a gradient comes to what the call made, it is of training; so is what is not seen to make anything."""
        call = self._call
        made: list[Any] = [one for one in _pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        if not made and torch.is_grad_enabled():
            self._learnt.add(call)
        for one in made:
            if one.requires_grad:
                one.register_hook(lambda _: self._learnt.add(call))

    @property
    def _is_covered(self) -> bool:
        with_graph = self._with_graph[self._call]
        return not self._learns or (self._known or {}).get(self._call, with_graph)

    def _context(self) -> AbstractContextManager[Any] | None:
        if self._has_accelerator or torch.is_autocast_enabled(self.device) or not self._is_covered:
            return None
        trainer = trainer_of(place[0] for place in all_places(sys._getframe(1)))
        if trainer is not None and trainer.name in self._trainers:
            return None
        self._opened = self._line
        self.applied += 1
        dtype = torch.bfloat16 if self.value == "bf16" else torch.float16
        self.write = f"with torch.autocast({self.device!r}, dtype={dtype}): around forward and loss"
        self.saw(self._until.given)
        if (place := call_place(sys._getframe(1))) is not None:
            self._of_call[self._call] = place
        context: AbstractContextManager[Any] = torch.autocast(self.device, dtype)
        return context


def _is_accelerating() -> bool:
    """Whether there is an Accelerator, or a launcher has chosen a precision for the first."""
    state = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    return bool(getattr(state, "_shared_state", None)) or os.environ.get("ACCELERATE_MIXED_PRECISION", "no") != "no"
