"""cuptimem.log: figures of a loop that its user wrote, to whatever logs there."""

import contextlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from cuptimem.integrations.figures import PREFIX
from cuptimem.integrations.recording import Recording
from cuptimem.words import size

LAST = 60.0  # seconds that the last figures are waited for


class Log:
    """A recording around a loop; see cuptimem.log."""

    def __init__(self, logger: Any, path: Any, every: int, summary: bool, options: dict[str, Any]) -> None:
        if every < 1:
            raise ValueError(f"every is a number of steps, not {every!r}")
        self._send = _sender(logger)
        self._every = every
        self._number = self._last = 0
        self.recording = Recording(path, summary=summary, **options)

    def __enter__(self) -> "Log":
        self.recording.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            found = self.recording.figures(wait=LAST) if value is None else {}
            if f"{PREFIX}step" in found:  # there is something behind the last log
                self._send(found, self._last)
        finally:
            self.recording.finish(value)

    def step(self, step: int | None = None) -> None:
        """The end of a training step. step: its number, where the loop has one; else they are counted from 1."""
        self._number += 1
        number = self._number if step is None else step
        self._last = number
        self.recording.step(number)
        if self._number % self._every == 0 and (found := self.recording.figures()):
            self._send(found, number)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens inside counts for this phase: evaluate, save, ..."""
        with self.recording.phase(name):
            yield


def log(logger: Any, *, path: Any = None, every: int = 10, summary: bool = True, **options: Any) -> Log:
    """Records a loop, and logs what its memory is made of every so many steps.

        with cuptimem.log(wandb.run, every=10) as memory:
            for batch in loader:
                train_step(batch)
                memory.step()
            with memory.phase("evaluate"):
                evaluate()

    logger: a W&B run (the figures join its next row), mlflow, a TensorBoard SummaryWriter, print (one line), or a
    function of the figures, a dictionary, and the step. path, options: as of cuptimem.profile.
    Raises TypeError for what is none of these.
    """
    return Log(logger, path, every, summary, options)


def _sender(logger: Any) -> Callable[[dict[str, int], int], Any]:
    if logger is print:
        return _print
    if callable(getattr(logger, "add_scalar", None)):
        return lambda found, step: [logger.add_scalar(name, value, step) for name, value in found.items()]
    if callable(getattr(logger, "log_metrics", None)):
        return lambda found, step: logger.log_metrics({name: float(value) for name, value in found.items()}, step=step)
    if callable(getattr(logger, "log", None)) and hasattr(logger, "config"):
        return lambda found, step: logger.log(found, commit=False)
    if callable(logger):
        send: Callable[[dict[str, int], int], Any] = logger
        return send
    raise TypeError(f"log() takes a W&B run, mlflow, a SummaryWriter, print or a function, not {logger!r}")


def _print(found: dict[str, int], step: int) -> None:
    said = [
        f"{name.removeprefix(PREFIX).removesuffix('_bytes')} {size(value)}"
        for name, value in found.items()
        if name.endswith(("/peak_bytes", "/live_bytes", "growth_bytes_per_step", "process_bytes"))
    ]
    print(f"step {step}: {', '.join(said)}")
