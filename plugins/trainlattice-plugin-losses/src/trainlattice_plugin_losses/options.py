"""Options of the built-in losses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainlattice.contracts.options import Options, Probability
from trainlattice.contracts.records import LossContract

Reduction = Literal["mean", "sum"]
_REDUCTION = "What goes backward; metrics report the mean either way."


class CrossEntropyOptions(Options):
    label_smoothing: Probability = Field(
        0.0, description="Share of the target that is spread evenly over all classes."
    )
    ignore_index: int = Field(-100, description="Class index of targets that do not count.")
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task="classification")


class RegressionOptions(Options):
    reduction: Reduction = Field("mean", description=_REDUCTION)

    def contract(self) -> LossContract:
        return LossContract(task="regression")
