"""Lightning: a callback that logs to the trainer's loggers."""

from typing import TYPE_CHECKING, Any

from cuptimem.integrations.figures import TRAIN
from cuptimem.integrations.recording import Recording

if TYPE_CHECKING:
    Callback: Any
else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:  # the package of the older name
        from pytorch_lightning.callbacks import Callback


class LightningCallback(Callback):  # type: ignore[misc]
    """Records fit, validate, test and predict, and logs what the memory is made of every log_every_n_steps.

        Trainer(callbacks=[cuptimem.integrations.LightningCallback()])

    Parameters as of cuptimem.profile; summary=False: no summary at the end; wait: see docs/trainers.md.
    """

    def __init__(self, path: Any = None, *, summary: bool = True, **options: Any) -> None:
        self.recording = Recording(path, summary=summary, **options)
        self._before: list[str] = []
        self._step = 0

    # -- the recording --------------------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        name = str(getattr(stage, "value", stage))
        self.recording.start({"fit": TRAIN, "validate": "evaluate"}.get(name, name))

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.recording.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._before.clear()
        self.recording.finish(exception)

    # -- phases ---------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        self._before.append(self.recording.enter(name))

    def _leave(self) -> None:
        if self._before:
            self.recording.enter(self._before.pop())

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._enter("sanity_check")

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        self._leave()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._enter("evaluate")

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._leave()

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        if self.recording.enter("save") != "save":
            self._before.append(TRAIN)  # until the next batch: Lightning does not say when a file is written

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._before.clear()
        self.recording.enter(TRAIN)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._step = trainer.global_step  # of a checkpoint that it goes on from

    # -- figures --------------------------------------------------------------------------------------------------

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self._step:  # gradients accumulate: Lightning logs nothing of this batch either
            return
        self._step = trainer.global_step
        self.recording.step(self._step)
        if trainer._logger_connector.should_update_logs:
            self._log(trainer)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._log(trainer)

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)

    def on_predict_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)

    def _log(self, trainer: Any) -> None:
        if not trainer.loggers:
            return
        found = self.recording.figures()
        for logger in trainer.loggers:
            named = {name.replace("/", logger.group_separator): float(value) for name, value in found.items()}
            if named:
                logger.log_metrics(named, step=trainer.fit_loop.epoch_loop._batches_that_stepped)
