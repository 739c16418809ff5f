"""How far a run has come: everything about its progress that a checkpoint holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class TrainerState:
    """Progress of a run.

    :param epoch: completed epochs.
    :param global_step: optimizer steps taken; in every mode one per window.
    :param samples: that training has seen, of skipped steps too.
    :param best_metric: best finite value of the monitored metric so far.
    :param best_epoch: the epoch in or after which it was found, counted from 1.
    :param best_step: the optimizer step after which it was found.
    :param stale_validations: consecutive validations without improvement.
    :param stop_requested: why the run is to end after this epoch.
    :param stop_reason: why the run ended before its last epoch.
    :param skipped_steps: windows that updated nothing, for the scaler or for what is not finite.
    :param nonfinite_updates: updates that ``nonfinite: skip`` left out.
    :param validated_at: the step of the last validation.
    :param validation: what it measured.
    """

    epoch: int = 0
    global_step: int = 0
    samples: int = 0
    best_metric: float | None = None
    best_epoch: int | None = None
    best_step: int | None = None
    stale_validations: int = 0
    stop_requested: str | None = None
    stop_reason: str | None = None
    skipped_steps: int = 0
    nonfinite_updates: int = 0
    validated_at: int = -1
    validation: dict[str, float] = field(default_factory=dict)

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What an earlier version did not save keeps its default."""
        for name in asdict(self).keys() & state.keys():
            setattr(self, name, state[name])
