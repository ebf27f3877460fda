"""Half precision."""

import functools
import inspect
import os
import sys
from contextlib import AbstractContextManager
from typing import Any

import torch

from cuptimem.simulation.changes import calls
from cuptimem.simulation.changes.change import Change, patch
from cuptimem.simulation.makers import Line, note_trainers
from cuptimem.simulation.places import all_places, is_programs
from cuptimem.trainer_settings import trainer_of


class Autocast(Change):
    """torch.autocast around forward and loss; in a program with an optimizer around those of training alone."""

    why_not = "no model is called, or it runs under autocast as it is"
    _learns = False
    _trained = False  # a model was called in training mode: where one is not, that is no training
    _has_accelerator = False

    def install(self) -> None:
        self._until = calls.UntilBackward(self._context)
        patch(torch.optim.Optimizer, "__init__", self._learning)
        self._made: dict[str, set[Line]] = {}
        note_trainers(self._made)
        if (accelerator := getattr(sys.modules.get("accelerate"), "Accelerator", None)) is not None:
            patch(accelerator, "__init__", self._accelerating)

    def _accelerating(self, original: Any) -> Any:
        """An Accelerator has its own autocast, around each call of a model, with outputs in 32 bits."""

        @functools.wraps(original)
        def init(this: Any, *arguments: Any, **keywords: Any) -> None:
            given = inspect.signature(original).bind(this, *arguments, **keywords)
            # One that transformers makes has the precision of its Trainer. All of a process share one state.
            is_own = is_programs(sys._getframe(1).f_code.co_filename) and not _is_accelerating()
            is_plain = given.arguments.get("mixed_precision") in (None, "no")
            if is_plain and (is_own or self._has_accelerator):
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

    def _context(self) -> AbstractContextManager[Any] | None:
        if self._has_accelerator or torch.is_autocast_enabled(self.device):
            return None
        self._trained |= self._until.is_training
        is_evaluation = not torch.is_grad_enabled() or (self._trained and not self._until.is_training)
        if self._learns and is_evaluation:
            return None
        self.applied += 1
        dtype = torch.bfloat16 if self.value == "bf16" else torch.float16
        self.write = f"with torch.autocast({self.device!r}, dtype={dtype}): around forward and loss"
        self.saw(self._until.given)
        trainer = trainer_of(place[0] for place in all_places(sys._getframe(1)))
        made = self._made.get(trainer.name, set()) if trainer is not None else set()
        if trainer is not None and len(made) == 1 and self.value == "bf16":
            self.write = trainer.write("autocast", is_made=True)
            ((file, function, line),) = made
            self._weights.clear()
            self.saw_at((file, line, function), 1)
        context: AbstractContextManager[Any] = torch.autocast(self.device, dtype)
        return context


def _is_accelerating() -> bool:
    """Whether there is an Accelerator, or a launcher has chosen a precision for the first."""
    state = getattr(sys.modules.get("accelerate.state"), "AcceleratorState", None)
    return bool(getattr(state, "_shared_state", None)) or os.environ.get("ACCELERATE_MIXED_PRECISION", "no") != "no"
