"""When a checkpoint is written, under which names, and what must be true before it takes them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainlattice.checkpoint.background import Background, host_copy
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.names import EMERGENCY, LAST, NOT_FINITE
from trainlattice.contracts.settings import CheckpointSettings
from trainlattice.diagnostics.errors import CheckpointWriteError, NonFiniteError, TrainLatticeError
from trainlattice.training.checkpointing import Checkpointer
from trainlattice.training.retention import Retention
from trainlattice.training.validation import keeping_rng

if TYPE_CHECKING:
    from trainlattice.training.trainer import Trainer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ended:
    """The end of an epoch, or of a run inside one, that is not saved yet.

    :param value: of the monitored metric, if it was validated just now.
    :param improved: whether that is the best so far.
    :param epoch: that is complete; None inside one.
    """

    value: float | None
    improved: bool
    epoch: int | None


class _Writing(NamedTuple):
    """A checkpoint on its way: its names, the value that it is ranked by, the epoch and step of its record, where
    the run stood, and how many records it had written."""

    names: list[str]
    value: float | None
    at: tuple[int, int]
    place: tuple[int, int, int]
    records: int = 0


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
        self.retention = Retention(settings, trainer.direction)
        self._background: Background[list[Path]] = Background()
        self._writing = _Writing([], None, (0, 0), (0, 0, 0))
        self._saved_here: tuple[int, int, int] | None = None
        self._saved_at = self._began = self._place()
        self._saved_when = time.monotonic()

    def begin(self) -> None:
        """A run that is resumed stands where it was saved."""
        self._saved_at = self._began = self._place()
        self._saved_when = time.monotonic()

    def require_storable(self) -> None:
        """What components would save is tried before the first step: a fault in it is to cost no training."""
        if self.checkpointer is not None:
            with keeping_rng():
                self.checkpointer.require_storable(self.trainer)

    def _place(self) -> tuple[int, int, int]:
        trainer = self.trainer
        return trainer.state.epoch, trainer.state.global_step, trainer.progress.windows

    def is_due(self) -> bool:
        """Between two steps of an epoch."""
        step, settings = self.trainer.state.global_step, self.settings
        if self._place() == self._saved_at:
            return False
        if settings.every_steps is not None and step % settings.every_steps == 0:
            return True
        return (
            settings.every_seconds is not None
            and time.monotonic() - self._saved_when >= settings.every_seconds
        )

    def is_due_after(self, epoch: int, *, ends: bool) -> bool:
        """After an epoch; the state in which a run ends is always saved."""
        every, kept = self.settings.every_epochs, self.settings.keep_every_epochs
        return ends or any(number is not None and epoch % number == 0 for number in (every, kept))

    def last(self, *, again: bool = True) -> None:
        """The state between two steps, as ``last.pt``.

        :param again: whether to write what this run has just written once more.
        """
        if not again and self._place() == self._saved_here:
            return
        self.save(self.retention.last(self.trainer.state.global_step, None))

    def best(self, value: float, *, improved: bool) -> None:
        """After a validation in the middle of an epoch."""
        step = self.trainer.state.global_step
        ranked = self.retention.ranked(value, step, improved=improved)
        if ranked:
            self._save_as(self.retention.last(step, None), ranked, value)

    def after_epoch(self, ended: Ended, *, ends: bool) -> None:
        """Saves where it is due, and what is among the best.

        :param ends: whether the run ends here.
        """
        step, ranked = self.trainer.state.global_step, []
        if ended.value is not None:
            ranked = self.retention.ranked(ended.value, step, improved=ended.improved)
        if ranked or self.is_due() or self.is_due_after(self.trainer.state.epoch, ends=ends):
            self._save_as(self.retention.last(step, ended.epoch), ranked, ended.value)

    def _save_as(self, last: list[str], ranked: list[str], value: float | None) -> None:
        """What is written is always the newest too: ``last.pt`` never points back to a best one that is gone."""
        self.save(list(dict.fromkeys([*last, *ranked])), value=value)

    def at_once(self, ended: Ended | None) -> None:
        """What is not saved yet, whether it is due or not; it is on disk when this returns.

        :param ended: an epoch that is over and was not saved, or None inside one.
        """
        if ended is None:
            self.last(again=False)
        else:
            self.after_epoch(ended, ends=True)
        self.finish()

    def save(self, names: list[str], *, value: float | None = None) -> None:
        """Only what is finite, after every record up to here is on disk, goes over an earlier checkpoint."""
        trainer, checkpointer = self.trainer, self.checkpointer
        trainer.require_finite()
        self.finish()  # it writes a record
        trainer.services.records.flush()
        if checkpointer is None:
            return
        fault = checkpointer.not_finite(trainer)
        if fault is not None:
            if trainer.settings.nonfinite != "continue":
                raise NonFiniteError(
                    f"after step {trainer.state.global_step} {fault} is not finite; no checkpoint was written "
                    "over; a smaller optimizer.lr or trainer.max_grad_norm may help"
                )
            names, value = [NOT_FINITE], None
        with keeping_rng():
            checkpoint = checkpointer.checkpoint(trainer, trainer.boundary)
        self._writing = _Writing(names, value, trainer.recorder.here, self._place(), trainer.recorder.count)
        self._saved_at, self._saved_when = self._place(), time.monotonic()
        if self.settings.asynchronous:
            copy = host_copy(checkpoint.as_plain())
            self._background.start(lambda: checkpointer.write(Checkpoint.of(copy), names))
        else:
            self._written(checkpointer.write(checkpoint, names))

    def poll(self) -> None:
        """Between two steps: tells of a checkpoint that was written meanwhile. Raises what went wrong."""
        if self._background.is_done:
            self.finish()

    def finish(self) -> None:
        """Waits until what is being written is on disk. Raises what went wrong."""
        if self._background.is_busy:
            self._written(self._background.take())

    def _written(self, paths: list[Path]) -> None:
        """They are durable: what they replace may go."""
        assert self.checkpointer is not None
        written = self._writing
        if LAST in written.names:
            self._saved_here = written.place
        self.checkpointer.remove(self.retention.written(written.names, written.value))
        with keeping_rng():  # a run that is resumed from this file does not hear of it
            for path in paths:
                for call in self.trainer.callbacks.on_checkpoint:
                    call(self.trainer, path)
        self.trainer.recorder.event("checkpoint", at=written.at, files=written.names, records=written.records)

    def emergency(self) -> None:
        """Diagnostic only."""
        if self.checkpointer is None:
            return
        try:
            self.finish()
        except (
            Exception
        ) as failure:  # what was on its way was not written, or a callback's on_checkpoint raised
            logger.warning("the checkpoint before it: %s", failure)
        try:
            checkpoint = self.checkpointer.checkpoint(self.trainer, kind="emergency")
            self.checkpointer.write(checkpoint, [EMERGENCY])
        except TrainLatticeError as failure:  # it must not hide the error that is being raised
            logger.warning("emergency.pt was not written: %s", failure)
        except Exception as failure:  # a component's state_dict may raise anything
            logger.warning("emergency.pt was not written: %s: %s", type(failure).__name__, failure)

    def rescue(self, error: BaseException, ended: Ended | None) -> None:
        """After an exception between two steps, in a validation, a callback or the data: what was trained is
        saved, and the run can be resumed.

        :param ended: an epoch that the exception kept from being saved.
        """
        useless = isinstance(error, (NonFiniteError, CheckpointWriteError)) or self._place() in (
            self._began,
            self._saved_here,
        )
        if self.checkpointer is None or useless:
            return
        try:
            self.at_once(ended)
        except TrainLatticeError as failure:  # it must not hide the error that is being raised
            logger.warning("last.pt was not written: %s", failure)
        except Exception as failure:  # a callback's on_checkpoint or state_dict may raise anything
            logger.warning("last.pt was not written: %s: %s", type(failure).__name__, failure)
