"""Which validation was the best, and when to stop for lack of a better one. Imports nothing heavy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from trainlattice.training.state import TrainerState

if TYPE_CHECKING:
    from trainlattice.contracts.settings import EarlyStoppingSettings

Direction = Literal["min", "max"]


def direction_of(
    metric: str, mode: Literal["auto", "min", "max"] = "auto", higher_is_better: bool | None = None
) -> Direction:
    """``auto``: what the metric itself says; accuracies are better when larger, everything else when smaller.

    :param higher_is_better: of the metric; None if it does not say.
    """
    if mode != "auto":
        return mode
    if higher_is_better is not None:
        return "max" if higher_is_better else "min"
    return "max" if metric.endswith("accuracy") else "min"


def judge(
    value: float,
    state: TrainerState,
    direction: Direction,
    stopping: EarlyStoppingSettings | None,
    epoch: int,
) -> bool:
    """Takes a new validation value of an epoch into the state; whether it is the best so far.

    The first finite value is the best. NaN and infinities never improve. A value that is better by no more
    than ``min_delta`` becomes the best but counts as no improvement for early stopping.
    """
    previous = state.best_metric
    gain = -math.inf
    if math.isfinite(value):
        if previous is None:
            gain = math.inf
        else:
            gain = previous - value if direction == "min" else value - previous
    improved = gain > 0
    if improved:
        state.best_metric, state.best_epoch, state.best_step = value, epoch, state.global_step
    if stopping is not None:
        state.stale_validations = 0 if gain > stopping.min_delta else state.stale_validations + 1
    return improved


def exhausted(state: TrainerState, stopping: EarlyStoppingSettings | None) -> bool:
    """Whether more than ``patience`` consecutive validations failed to improve."""
    return stopping is not None and state.stale_validations > stopping.patience
