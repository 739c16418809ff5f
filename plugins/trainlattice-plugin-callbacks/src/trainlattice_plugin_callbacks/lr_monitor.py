"""Learning rates of every optimizer and group."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from trainlattice.training.callbacks import Callback, RecordName
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.options import LRMonitorOptions

Rates = dict[str, float | Tensor]


class LRMonitor(Callback):
    """``lr/<role>``, of several groups ``lr/<role>/<group>``: in batch records what the step applied, in epoch
    records what the next one would."""

    def __init__(self, options: LRMonitorOptions) -> None:
        self.applied: Rates = {}

    def on_gradients(self, trainer: Trainer, role: str) -> None:
        """Before the step: afterwards the schedule has gone on."""
        self.applied |= self._rates(trainer, role)

    def measure(self, trainer: Trainer, record: RecordName) -> Mapping[str, float | Tensor]:
        if record == "batch":
            applied, self.applied = self.applied, {}
            return applied
        if record == "validation":
            return {}
        found: Rates = {}
        for role in trainer.parts.updates:
            found |= self._rates(trainer, role)
        return found

    def _rates(self, trainer: Trainer, role: str) -> Rates:
        groups = trainer.parts.updates[role].optimizer.param_groups
        if len(groups) == 1:
            return {f"lr/{role}": _held(groups[0]["lr"])}
        return {f"lr/{role}/{number}": _held(group["lr"]) for number, group in enumerate(groups)}


def _held(rate: float | Tensor) -> float | Tensor:
    """A rate on the device is changed in place by its schedule."""
    return rate.clone() if isinstance(rate, Tensor) else rate
