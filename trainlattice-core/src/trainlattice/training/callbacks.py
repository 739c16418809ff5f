"""Callbacks observe a run. Only the methods that a class overrides are ever called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from trainlattice.data.container import Container

if TYPE_CHECKING:
    from trainlattice.training.trainer import Trainer

logger = logging.getLogger(__name__)
PhaseName = Literal["train", "val", "test"]


class Callback:
    """Base class of callbacks: override what you need.

    The order is that of the configuration. An exception ends the run. ``state_dict`` must hold tensors and
    plain containers only; it is saved in every checkpoint and loaded on resume. It is asked first after
    ``on_run_start``. What follows a step (the end of an epoch, a validation) and was left halfway by a signal is
    told of again on resume, from the state before it; what was complete is not.
    """

    def update_config(self, config: Mapping[str, Any]) -> None:
        """The resolved configuration, as it stands in ``config.yaml``: mappings and tuples that cannot be changed.
        Comes first, while the run is built."""

    def on_run_start(self, trainer: Trainer) -> None:
        """Everything is built, a checkpoint to resume from is loaded, no step has been taken."""

    def on_phase_start(self, trainer: Trainer, phase: PhaseName) -> None:
        """The training part of an epoch, or a validation, begins."""

    def on_epoch_start(self, trainer: Trainer) -> None:
        """``trainer.state.epoch`` epochs are complete and the next begins."""

    def on_batch_start(self, trainer: Trainer, phase: PhaseName, container: Container) -> None:
        """A batch is about to go through: ``container`` holds what the loader made, still on the host."""

    def on_batch_end(self, trainer: Trainer, phase: PhaseName, container: Container) -> None:
        """A batch went through: ``container`` holds input, target, pred and loss, on the device."""

    def on_lr_update(self, trainer: Trainer, rates: Mapping[str, float]) -> None:
        """A schedule has set the learning rates of the next step: by optimizer, its first group's."""

    def on_step_end(self, trainer: Trainer) -> None:
        """A window is complete; ``trainer.state.global_step`` steps have been taken."""

    def on_phase_end(self, trainer: Trainer, phase: PhaseName) -> None:
        """The training part of an epoch, or a validation, is over."""

    def log_metrics(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        """A record was written to metrics.jsonl. None comes before ``on_run_start`` or after ``finalize``."""

    def on_checkpoint(self, trainer: Trainer, path: Path) -> None:
        """A checkpoint is on disk."""

    def on_epoch_end(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        """An epoch is over, its validation included, and its checkpoint is not yet written.
        ``trainer.request_stop(reason)`` ends the run after that checkpoint."""

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        """The run ended, with the exception that ended it or None. Called on every callback, last."""

    def evaluating(self, models: Mapping[str, nn.Module]) -> AbstractContextManager[None]:
        """Surrounds each validation, and ``trainlattice evaluate``: for weights that are evaluated in place of
        those that are trained. A checkpoint that is written meanwhile is written outside of it, and whatever ends
        the validation leaves it.

        :param models: by role.
        """
        return nullcontext()

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None


class CallbackList:
    """The callbacks of a run, with the overridden methods bound once.

    :param named: callbacks with the names under which their state is saved.
    """

    def __init__(self, named: Iterable[tuple[str, Callback]]) -> None:
        self.named = list(named)
        self.update_config = self._bound("update_config")
        self.on_run_start = self._bound("on_run_start")
        self.on_phase_start = self._bound("on_phase_start")
        self.on_epoch_start = self._bound("on_epoch_start")
        self.on_batch_start = self._bound("on_batch_start")
        self.on_batch_end = self._bound("on_batch_end")
        self.on_lr_update = self._bound("on_lr_update")
        self.on_step_end = self._bound("on_step_end")
        self.on_phase_end = self._bound("on_phase_end")
        self.log_metrics = self._bound("log_metrics")
        self.on_checkpoint = self._bound("on_checkpoint")
        self.on_epoch_end = self._bound("on_epoch_end")
        self.evaluating = self._bound("evaluating")

    def _bound(self, method: str) -> list[Callable[..., Any]]:
        """Empty where no callback overrides the method: the caller's loop then costs nothing."""
        return [
            getattr(callback, method)
            for _, callback in self.named
            if getattr(type(callback), method, None) is not getattr(Callback, method)
        ]

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        """Tells every callback, also after one of them raised; the first exception is raised at the end."""
        first: Exception | None = None
        for _, callback in self.named:
            try:
                callback.finalize(trainer, error)
            except Exception as raised:  # each callback must be told, so that it can close what it opened
                if first is not None or error is not None:
                    logger.warning("%s.finalize failed too: %s", type(callback).__name__, raised)
                first = first or raised
        if first is not None and error is None:
            raise first

    def state_dict(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self.named}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Callbacks may come and go between runs: each takes the state saved under its name, if any."""
        for name, callback in self.named:
            if name in state:
                callback.load_state_dict(state[name])
