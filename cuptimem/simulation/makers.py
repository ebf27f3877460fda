"""Where the program makes its optimizers and DataLoaders, models of transformers, and the settings of a trainer, and
where it asks for gradients of zeros: there, others are written in their place."""

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader

from cuptimem import _core
from cuptimem.errors import own
from cuptimem.simulation.changes.change import patch
from cuptimem.simulation.places import is_programs
from cuptimem.trainer_settings import TRAINERS, Trainer

Line = tuple[str, str, int]  # file, function, line


class Makers:
    def __init__(self) -> None:
        self._lines: dict[int, tuple[weakref.ref[Any], Line]] = {}  # by id: a class of the program may have no hash
        # Samples of a batch, where autograd was on when it was first iterated: in training; then the others.
        self._of_training: list[tuple[int, Line]] = []
        self._others: list[tuple[int, Line]] = []
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._of_data: dict[int, Line] = {}  # of a dataset, by id: its DataLoader's
        self._trainers: dict[str, set[Line]] = {}
        self._models: set[Line] = set()
        self._zeroing: set[Line] = set()

    def start(self) -> None:
        """Before the program's first line."""
        for made in (Optimizer, DataLoader):
            patch(made, "__init__", self._noting)
        patch(DataLoader, "__iter__", self._iterating)
        for zeroed in (Optimizer, nn.Module):
            patch(zeroed, "zero_grad", self._noting_zeros)
        note_trainers(self._trainers)
        if (library := sys.modules.get("transformers.modeling_utils")) is not None:
            patch(library.PreTrainedModel, "__init__", self._noting_model)

    @property
    def models(self) -> list[Line]:
        """That make models of transformers, which have such models in them."""
        return sorted(self._models)

    @property
    def zeroing(self) -> list[Line]:
        """That call zero_grad(set_to_none=False)."""
        return sorted(self._zeroing)

    @property
    def trainers(self) -> dict[str, Line]:
        """By name, of those whose settings one line makes: of several it is not known which are in use."""
        return {name: next(iter(lines)) for name, lines in self._trainers.items() if len(lines) == 1}

    @property
    def loaders(self) -> list[tuple[int, Line]]:
        return self._of_training + self._others

    def line_of(self, made: Any) -> Line | None:
        """None: no line of the program led there."""
        known, line = self._lines.get(id(made), (None, None))
        return line if known is not None and known() is made else None

    def _noting(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)  # Lightning reads the signature of a loader
        def init(this: Any, *arguments: Any, **keywords: Any) -> None:
            original(this, *arguments, **keywords)
            line, data = maker(this), getattr(this, "dataset", None)
            if data is not None and line is not None:
                # One that a library puts in the place of the program's, as accelerate does, is written where that is.
                own = is_programs(sys._getframe(1).f_code.co_filename)
                line = self._of_data.setdefault(id(data), line) if not own else line
                self._of_data[id(data)] = line
            if line is not None:
                self._lines[id(this)] = weakref.ref(this), line

        return init

    def _noting_model(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(this: Any, *arguments: Any, **keywords: Any) -> None:
            if (line := maker(this)) is not None:
                self._models.add(line)
            original(this, *arguments, **keywords)

        return init

    def _noting_zeros(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def zero_grad(this: Any, set_to_none: bool = True) -> None:
            if not set_to_none and (line := maker(this)) is not None:
                self._zeroing.add(line)
            original(this, set_to_none=set_to_none)

        return zero_grad

    def _iterating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def iterate(this: Any) -> Any:
            known = self._seen.get(id(this))
            if known is None or known() is not this:
                self._seen[id(this)] = weakref.ref(this)
                self._note(this)
            return original(this)

        return iterate

    def _note(self, loader: Any) -> None:
        line, size = self.line_of(loader), loader.batch_size
        if size is None:
            try:
                size = loader.batch_sampler.batch_size
            except own(Exception):  # the program's own class, which may have none, or anything in its place
                return
        if line is not None and isinstance(size, int):
            (self._of_training if torch.is_grad_enabled() else self._others).append((size, line))


def note_trainers(lines: dict[str, set[Line]]) -> None:
    """By name of the trainer: the lines of the program that make its settings, or the trainer itself."""

    def noting(trainer: str, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make(this: Any, *arguments: Any, **keywords: Any) -> None:
            line = maker(this)
            if line is not None:
                lines.setdefault(trainer, set()).add(line)
            original(this, *arguments, **keywords)

        return make

    for trainer in TRAINERS:
        _patch_makers(trainer, functools.partial(noting, trainer.name))


def before_trainer(name: str, edit: Callable[[Trainer, Any, dict[str, Any]], None]) -> None:
    """edit(trainer, made, keywords) is called before the object that has a trainer's settings gets them."""

    def editing(trainer: Trainer, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def make(this: Any, *arguments: Any, **keywords: Any) -> None:
            edit(trainer, this, keywords)
            original(this, *arguments, **keywords)

        return make

    for trainer in TRAINERS:
        if trainer.name == name:
            _patch_makers(trainer, functools.partial(editing, trainer))


def _patch_makers(trainer: Trainer, make: Callable[[Any], Any]) -> None:
    for module, name, method in trainer.makers:
        # What the program imports of libraries is there already (try_imports.py).
        if (made := getattr(sys.modules.get(module), name, None)) is not None:
            patch(made, method, make)


def maker(made: Any) -> Line | None:
    """The program's line that makes an object, or calls it, outside of the object's own methods."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if is_programs(code.co_filename):
            first = code.co_varnames[0] if code.co_argcount else ""
            if _core.frame_locals(frame).get(first) is not made:
                return code.co_filename, code.co_qualname, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]  # None behind the outermost
    return None
