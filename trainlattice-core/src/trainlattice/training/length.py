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
    epochs, steps = settings.epochs, settings.max_steps
    return (epochs is not None and state.epoch >= epochs) or (
        steps is not None and state.global_step >= steps
    )


def is_over(settings: TrainerSettings, state: TrainerState, windows: int) -> bool:
    """Whether the run has ended, its last validation and its records included.

    :param windows: of an epoch under way; what ends a run inside an epoch gives a reason once it is through.
    """
    return state.stop_reason is not None or (is_complete(settings, state) and not windows)


def total_steps(settings: TrainerSettings, steps_per_epoch: int | None) -> int | None:
    """Optimizer steps of a run: by its epochs, by max_steps, or the smaller of both. None if only the end of a
    stream without length ends an epoch."""
    limits = []
    if settings.epochs is not None and steps_per_epoch is not None:
        limits.append(settings.epochs * steps_per_epoch)
    if settings.max_steps is not None:
        limits.append(settings.max_steps)
    return min(limits, default=None)
