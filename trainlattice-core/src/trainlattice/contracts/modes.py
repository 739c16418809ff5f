"""Options of the modes that core provides."""

from __future__ import annotations

from trainlattice.contracts.options import Options
from trainlattice.contracts.records import ModeContract


class SupervisedOptions(Options):
    def contract(self) -> ModeContract:
        return ModeContract(
            required=("model", "dataset"),
            optional=("postprocess", "loss", "optimizer", "scheduler"),
            metrics=("loss", "accuracy"),
        )
