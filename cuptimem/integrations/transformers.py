"""Hugging Face Trainer: a callback in front of the reporters."""

import functools
import sys
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import integration_utils
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from cuptimem.integrations.figures import PREFIX, TRAIN
from cuptimem.integrations.recording import Recording

# The methods of a Trainer that are phases. `train` and what is called outside of it are recordings of their own.
_PHASES = {"train": TRAIN, "evaluate": "evaluate", "predict": "predict", "_save_checkpoint": "save"}


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Records a Trainer, and adds what the memory is made of to each of its logs.

        Trainer(..., callbacks=[cuptimem.integrations.TransformersCallback()])

    All reporters and state.log_history have the figures; the console does not. callback.attach(trainer) is for a
    trainer that exists already. Parameters as of cuptimem.profile; summary=False: no summary at the end; wait: see
    docs/trainers.md.
    """

    def __init__(self, path: Any = None, *, summary: bool = True, **options: Any) -> None:
        self.recording = Recording(path, summary=summary, **options)
        self._attached = False

    def attach(self, trainer: Any) -> None:
        """Moves to the front of the trainer's callbacks, where every reporter's dictionary passes, and follows its
        phases."""
        if self._attached:
            return
        self._attached = True
        callbacks = trainer.callback_handler.callbacks
        if self in callbacks:
            callbacks.remove(self)
        callbacks.insert(0, self)
        shown = (at for at, one in enumerate(callbacks) if isinstance(one, (PrinterCallback, ProgressCallback)))
        callbacks.insert(next(shown, len(callbacks)), _OffConsole())
        for method, phase in _PHASES.items():
            if hasattr(trainer, method):
                setattr(trainer, method, self._around(getattr(trainer, method), phase))

    def _around(self, method: Callable[..., Any], phase: str) -> Callable[..., Any]:
        recording = self.recording

        @functools.wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            outermost = recording.start(phase)
            try:
                with recording.phase(phase):
                    result = method(*arguments, **named)
            except BaseException as error:
                if outermost:
                    recording.finish(error)
                raise
            if outermost:
                recording.finish()
            return result

        return call

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer = _trainer_of(self)
        if trainer is not None:
            self.attach(trainer)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.recording.start()  # of a trainer that this callback was added to later: without its phases

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._attached:
            self.recording.finish()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.recording.step(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        found = self.recording.figures()
        if not found or logs is None:
            return
        logs.update(found)
        history = state.log_history
        if history and history[-1].get("step") == state.global_step:
            history[-1].update(found)


class _OffConsole(TrainerCallback):  # type: ignore[misc]
    """In front of the callback that prints logs: twenty figures of memory are not for a line of the console."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        for name in [name for name in logs or () if name.startswith(PREFIX)]:
            del logs[name]


def _trainer_of(callback: object) -> Any:
    """The Trainer that is calling: a callback is not told of it."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        found = frame.f_locals.get("self")
        handler = getattr(found, "callback_handler", None)
        if handler is not None and callback in getattr(handler, "callbacks", ()):
            return found
    return None


# report_to="cuptimem": transformers has no entry point for reporters, only this table.
integration_utils.INTEGRATION_TO_CALLBACK.setdefault("cuptimem", TransformersCallback)
