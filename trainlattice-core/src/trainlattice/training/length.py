"""How long a run is, in optimizer steps."""

from __future__ import annotations

import math

from trainlattice.contracts.settings import TrainerSettings
from trainlattice.data.source import BatchSource
from trainlattice.training.state import TrainerState


def steps_per_epoch(train: BatchSource, accumulate: int) -> int | None:
    """Optimizer steps in an epoch, a last window that is not full included; None for a stream without length."""
    batches = train.batches_per_epoch
    return None if batches is None else math.ceil(batches / accumulate)


def is_complete(settings: TrainerSettings, state: TrainerState) -> bool:
    """Whether a run in this state has nothing left to do."""
    return (settings.epochs is not None and state.epoch >= settings.epochs) or limit(
        settings, state
    ) is not None


def limit(settings: TrainerSettings, state: TrainerState) -> str | None:
    """The limit that a run has reached, which may be inside an epoch; None if it has reached none."""
    if settings.max_steps is not None and state.global_step >= settings.max_steps:
        return f"max_steps: {settings.max_steps} optimizer steps"
    if settings.max_samples is not None and state.samples >= settings.max_samples:
        return f"max_samples: {settings.max_samples} samples"
    return None


def longer(settings: TrainerSettings, state: TrainerState) -> list[str]:
    """What a run that has reached its length needs to train on, as ``KEY=VALUE``: each limit twice as far."""
    reached = (
        ("epochs", settings.epochs, state.epoch),
        ("max_steps", settings.max_steps, state.global_step),
        ("max_samples", settings.max_samples, state.samples),
    )
    return [f"trainer.{name}={2 * now}" for name, most, now in reached if most is not None and now >= most]


def is_over(settings: TrainerSettings, state: TrainerState, windows: int) -> bool:
    """Whether the run has ended, its last validation and its records included.

    :param windows: of an epoch under way; what ends a run inside an epoch gives a reason once it is through.
    """
    return state.stop_reason is not None or (is_complete(settings, state) and not windows)


def total_steps(settings: TrainerSettings, train: BatchSource) -> int | None:
    """Optimizer steps of a run: by its epochs, by max_steps, by max_samples (at an epoch's steps per sample), or
    the smallest of these. None if only the end of a stream without length ends an epoch."""
    limits, per_epoch = [], steps_per_epoch(train, settings.accumulate)
    if settings.epochs is not None and per_epoch is not None:
        limits.append(settings.epochs * per_epoch)
    if settings.max_samples is not None and per_epoch is not None and train.num_samples:
        limits.append(math.ceil(settings.max_samples * per_epoch / train.num_samples))
    if settings.max_steps is not None:
        limits.append(settings.max_steps)
    return min(limits, default=None)
