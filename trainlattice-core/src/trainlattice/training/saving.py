"""When a checkpoint is written, under which names, and what must be true before it takes them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from trainlattice.contracts.settings import CheckpointSettings
from trainlattice.diagnostics.errors import NonFiniteError, TrainLatticeError
from trainlattice.training.checkpointing import Checkpointer
from trainlattice.training.retention import Retention
from trainlattice.training.stopping import direction_of

if TYPE_CHECKING:
    from trainlattice.training.trainer import Trainer

logger = logging.getLogger(__name__)


class Saver:
    """Saves the state of a Trainer as the section ``checkpoint`` says.

    :param checkpointer: None for a run that saves nothing.
    """

    def __init__(
        self, trainer: Trainer, checkpointer: Checkpointer | None, settings: CheckpointSettings
    ) -> None:
        self.trainer = trainer
        self.checkpointer = checkpointer
        self.settings = settings
        direction = direction_of(trainer.settings.monitor, trainer.settings.monitor_mode)
        self.retention = Retention(settings, direction)
        self._saved_at = -1
        self._saved_when = time.monotonic()

    def begin(self) -> None:
        """A run that is resumed stands where it was saved."""
        self._saved_at, self._saved_when = self.trainer.state.global_step, time.monotonic()

    def is_due(self) -> bool:
        """Between two steps of an epoch."""
        step, settings = self.trainer.state.global_step, self.settings
        if step == self._saved_at:
            return False
        if settings.every_steps is not None and step % settings.every_steps == 0:
            return True
        return (
            settings.every_seconds is not None
            and time.monotonic() - self._saved_when >= settings.every_seconds
        )

    def is_due_after(self, epoch: int, *, ends: bool) -> bool:
        """After an epoch; the state in which a run ends is always saved."""
        every = self.settings.every_epochs
        return ends or (every is not None and epoch % every == 0)

    def last(self, *, rng: dict[str, Any] | None = None) -> None:
        """The state between two steps, as ``last.pt``.

        :param rng: random states of training, where the current ones are those of a validation.
        """
        self.save(self.retention.last(self.trainer.state.global_step, None), rng=rng)
        self._saved_at, self._saved_when = self.trainer.state.global_step, time.monotonic()

    def best(self, value: float, *, improved: bool) -> None:
        """After a validation in the middle of an epoch."""
        names = self.retention.ranked(value, self.trainer.state.global_step, improved=improved)
        if names:
            self.save(names, value=value)

    def after_epoch(
        self, value: float | None, *, improved: bool, ended_epoch: int | None, ends: bool
    ) -> None:
        """After an epoch and its validation, or where a run ends inside one.

        :param value: of the monitored metric, if it was validated just now.
        """
        step = self.trainer.state.global_step
        names = []
        if self.is_due_after(self.trainer.state.epoch, ends=ends):
            names += self.retention.last(step, ended_epoch)
        if value is not None:
            names += self.retention.ranked(value, step, improved=improved)
        if names:
            self.save(list(dict.fromkeys(names)), value=value)
        if names and names[0] == "last.pt":
            self._saved_at, self._saved_when = step, time.monotonic()

    def save(
        self, names: list[str], *, value: float | None = None, rng: dict[str, Any] | None = None
    ) -> None:
        """Only what is finite, after every record up to here is on disk, goes over an earlier checkpoint."""
        trainer, checkpointer = self.trainer, self.checkpointer
        trainer.require_finite()
        trainer.services.records.flush()
        if checkpointer is None:
            return
        if not checkpointer.is_finite(trainer):
            if trainer.settings.nonfinite != "continue":
                raise NonFiniteError(
                    f"after step {trainer.state.global_step} a weight or the optimizer's state is not finite; "
                    "the last checkpoint is untouched; a smaller optimizer.lr or trainer.max_grad_norm may help"
                )
            names, value = ["nonfinite.pt"], None
        for path in checkpointer.save(trainer, names, rng=rng):
            for call in trainer.callbacks.on_checkpoint:
                call(trainer, path)
        trainer.event("checkpoint", files=names)
        checkpointer.remove(self.retention.written(names, value))

    def emergency(self) -> None:
        """Diagnostic only."""
        if self.checkpointer is None:
            return
        try:
            self.checkpointer.save(self.trainer, ["emergency.pt"], kind="emergency")
        except TrainLatticeError as failure:  # it must not hide the error that is being raised
            logger.warning("emergency.pt was not written: %s", failure)
        except Exception as failure:  # a component's state_dict may raise anything
            logger.warning("emergency.pt was not written: %s: %s", type(failure).__name__, failure)
