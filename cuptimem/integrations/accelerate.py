"""Accelerate: a tracker that adds figures to what the other trackers log."""

from collections.abc import MutableMapping
from typing import Any

from accelerate.tracking import GeneralTracker

from cuptimem.integrations.figures import PREFIX
from cuptimem.integrations.recording import Recording


class AccelerateTracker(GeneralTracker):  # type: ignore[misc]
    """Records from Accelerator.init_trackers() to end_training(), on every rank.

        accelerator = Accelerator(log_with=[cuptimem.integrations.AccelerateTracker(), "wandb"])

    Name it first: what accelerator.log(values, step=...) logs then has the figures, for every tracker behind it.
    """

    name = "cuptimem"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, path: Any = None, *, summary: bool = True, **options: Any) -> None:
        super().__init__()
        self.recording = Recording(path, summary=summary, **options)
        self._logs = 0

    @property
    def tracker(self) -> Recording:
        return self.recording

    def start(self) -> None:
        self.recording.start()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.recording.start()  # where accelerate has no start() yet

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._logs += 1
        self.recording.step(self._logs if step is None else step)
        found = self.recording.figures()
        if isinstance(values, MutableMapping):
            for name in [name for name in values if str(name).startswith(PREFIX)]:  # of a dictionary that is used again
                del values[name]
            values.update(found)

    def finish(self) -> None:
        self.recording.finish()
