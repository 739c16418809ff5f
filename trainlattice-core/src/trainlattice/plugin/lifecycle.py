"""What the lifecycle hooks are told about a run. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunInfo:
    """A run that was created.

    :param directory: the run directory.
    :param name: experiment.name.
    :param config: the resolved configuration as plain data; changing it has no effect.
    :param resumed_from: the checkpoint that it continues, or None.
    """

    directory: Path
    name: str
    config: Mapping[str, Any]
    resumed_from: Path | None = None


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    :param status: ``finished``.
    :param reason: why it ended before its last epoch, or None.
    :param epoch: completed epochs.
    :param global_step: optimizer steps taken, those of the runs it continues included.
    :param best_metric: best value of trainer.monitor, or None if there was none.
    :param best_epoch: the epoch of that value.
    """

    status: str
    reason: str | None
    epoch: int
    global_step: int
    best_metric: float | None
    best_epoch: int | None
