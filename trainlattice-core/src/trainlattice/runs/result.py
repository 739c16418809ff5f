"""How a run ended, for whoever started it. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainlattice.diagnostics.errors import TrackerError


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    :param run_dir: its directory; None if there was nothing to train.
    :param status: ``finished``.
    :param epoch: completed epochs.
    :param global_step: optimizer steps, those of the runs it continues included.
    :param best_metric: best value of ``monitor``, or None.
    :param validated: whether there was a validation at all.
    :param skipped_steps: windows that updated nothing.
    :param samples: that training has seen, those of the runs it continues included.
    :param longer: what it needs to train on, as ``KEY=VALUE``; empty if it ended before it was complete.
    :param lr: of the step that would come next; 0 where a schedule has run out.
    :param seconds: wall time of the training, from the first step to the last checkpoint.
    """

    run_dir: Path | None
    status: str
    epoch: int
    global_step: int
    monitor: str
    best_metric: float | None
    best_epoch: int | None
    stop_reason: str | None
    validated: bool
    seconds: float
    skipped_steps: int = 0
    samples: int = 0
    lr: float | None = None
    longer: tuple[str, ...] = ()


class UntrackedRunError(TrackerError):
    """A run is finished, and a tracker with ``on_error: fail`` is not.

    :param result: of the run.
    """

    def __init__(self, error: TrackerError, result: RunResult) -> None:
        super().__init__(f"{error}\n  the run itself is finished: {result.run_dir}")
        self.result = result
