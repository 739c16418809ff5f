"""Callbacks observe a run. Only the methods that a class overrides are ever called."""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from trainlattice.data.container import Container
from trainlattice.diagnostics.errors import TrainLatticeError

if TYPE_CHECKING:
    from trainlattice.training.trainer import Trainer

logger = logging.getLogger(__name__)
PhaseName = Literal["train", "val", "test"]
PHASES: tuple[PhaseName, ...] = ("train", "val", "test")
RecordName = Literal["batch", "validation", "epoch"]


class Callback:
    """Base class of callbacks: override what you need.

    The order is that of the configuration. An exception ends the run. ``state_dict`` must hold tensors and
    plain containers only; it is saved in every checkpoint and loaded on resume. It is asked first after
    ``on_run_start``. What follows a step (the end of an epoch, a validation) and was left halfway by a signal is
    told of again on resume, from the state before it; what was complete is not.
    """

    batch_phases: tuple[PhaseName, ...] = PHASES
    """Where ``on_batch_start`` and ``on_batch_end`` are called. Predictions of a training step are kept in memory
    until it is over only where some ``on_batch_end`` asks for them."""

    sees_every_gradient = False
    """Whether ``on_gradients`` is called at every step, and not only at those that are about to be logged."""

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

    def on_gradients(self, trainer: Trainer, role: str) -> None:
        """The gradients of a whole window stand in the parameters of ``trainer.parts.updates[role]``: unscaled, not
        yet clipped, perhaps not finite. Called for each update of a step that will be logged (or of every step, see
        ``sees_every_gradient``), also if it is then skipped. Nothing here should wait for the device. An
        exception comes before the step is taken."""

    def on_lr_update(self, trainer: Trainer, rates: Mapping[str, float]) -> None:
        """A schedule has set the learning rates of the next step: by optimizer, its first group's."""

    def on_step_end(self, trainer: Trainer) -> None:
        """A window is complete; ``trainer.state.global_step`` steps have been taken."""

    def on_phase_end(self, trainer: Trainer, phase: PhaseName) -> None:
        """The training part of an epoch, or a validation, is over."""

    def measure(self, trainer: Trainer, record: RecordName) -> Mapping[str, float | Tensor]:
        """Numbers for a record of this type, which is about to be written: ``batch`` after a step that is logged,
        ``validation`` after one, ``epoch`` when one is over. Scalar tensors may be on the device: they come to
        the host with the other numbers of the record, in one transfer. A name that the record has already is an
        error; ``grad_norm/optimizer`` is a good form. After an exception here the record is written
        with the numbers of the other callbacks, and then the run ends as after any other between two steps."""
        return {}

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


@dataclass
class Measured:
    """What callbacks measure for one record.

    :param values: floats, and scalar tensors on their devices.
    :param error: what the first one that failed raised; to be raised once the record is written.
    """

    values: dict[str, float | Tensor] = field(default_factory=dict)
    error: Exception | None = None


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
        self.on_batch_start = {phase: self._bound("on_batch_start", phase) for phase in PHASES}
        self.on_batch_end = {phase: self._bound("on_batch_end", phase) for phase in PHASES}
        self.on_gradients = self._bound("on_gradients")
        self.on_gradients_of_every_step = [
            callback.on_gradients
            for _, callback in self.named
            if _overrides(callback, "on_gradients") and callback.sees_every_gradient
        ]
        self.on_lr_update = self._bound("on_lr_update")
        self.on_step_end = self._bound("on_step_end")
        self.on_phase_end = self._bound("on_phase_end")
        self.measure = [
            (name, callback.measure) for name, callback in self.named if _overrides(callback, "measure")
        ]
        self.log_metrics = self._bound("log_metrics")
        self.on_checkpoint = self._bound("on_checkpoint")
        self.on_epoch_end = self._bound("on_epoch_end")
        self.evaluating = self._bound("evaluating")

    def _bound(self, method: str, phase: PhaseName | None = None) -> list[Callable[..., Any]]:
        """Empty where no callback overrides the method: the caller's loop then costs nothing."""
        return [
            getattr(callback, method)
            for _, callback in self.named
            if _overrides(callback, method) and (phase is None or phase in callback.batch_phases)
        ]

    def measured(self, trainer: Trainer, record: RecordName, taken: Collection[str]) -> Measured:
        """Asks every callback that measures.

        :param taken: names that the record has already.
        """
        found, owners = Measured(), dict.fromkeys(taken, "the record")
        for name, measure in self.measure:
            own: dict[str, float | Tensor] = {}
            try:
                for key, value in measure(trainer, record).items():
                    if not isinstance(key, str):
                        raise TrainLatticeError(f"the callback {name!r} measures {key!r}, which is no name")
                    if key in owners:
                        raise TrainLatticeError(
                            f"the callback {name!r} measures {key!r} for a {record} record, and {owners[key]} has "
                            "that name already"
                        )
                    own[key] = _scalar(name, key, value)
            except Exception as raised:  # the step was taken: its record comes first
                found.error = found.error or raised
            else:
                found.values |= own
                owners |= dict.fromkeys(own, f"the callback {name!r}")
        return found

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        """Tells every callback, also after one of them raised; the first exception is raised at the end."""
        first: BaseException | None = None
        for _, callback in self.named:
            try:
                callback.finalize(trainer, error)
            except (
                Exception,
                SystemExit,
            ) as raised:  # each must be told, so that it can close what it opened
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
                try:
                    callback.load_state_dict(state[name])
                except Exception as error:  # it may be of another version of the callback
                    text = error.args[0] if isinstance(error, KeyError) and error.args else error
                    raise ValueError(f"the callback {name!r} cannot take its state: {text!s}") from error


def on_host(values: Mapping[str, float | Tensor]) -> dict[str, float]:
    """The same numbers as floats, in the same order; tensors come in one transfer for each device."""
    found = {name: value if isinstance(value, float) else 0.0 for name, value in values.items()}
    tensors = {name: value.double() for name, value in values.items() if isinstance(value, Tensor)}
    for device in {value.device for value in tensors.values()}:
        names = [name for name, value in tensors.items() if value.device == device]
        numbers = torch.stack([tensors[name] for name in names]).tolist()
        found.update(zip(names, numbers, strict=True))
    return found


def _overrides(callback: Callback, method: str) -> bool:
    return getattr(type(callback), method, None) is not getattr(Callback, method)


def _scalar(callback: str, name: str, value: Any) -> float | Tensor:
    if isinstance(value, Tensor) and value.numel() == 1 and not value.is_complex():
        return value.detach().reshape(())
    if isinstance(value, numbers.Real):  # those of numpy too
        return float(value)
    form = (
        f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    )
    raise TrainLatticeError(f"the callback {callback!r} measures {name!r} as {form}, expected a number")
