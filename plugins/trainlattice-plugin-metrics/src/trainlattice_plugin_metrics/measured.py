"""A metric of torchmetrics as the platform needs it: with a state that a checkpoint holds."""

from __future__ import annotations

from typing import Any

from torch import nn
from torchmetrics import Metric


class Measured(nn.Module):
    """Keeps the states of a metric in its ``state_dict``, which torchmetrics leaves out by default.

    torchmetrics looks at the values of each batch, and waits for the device for that. Here it looks at the first
    ones, with which the platform tries a metric before the run, and at none afterwards.
    """

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        metric.persistent(True)
        self.metric = metric

    @property
    def higher_is_better(self) -> bool | None:
        better: bool | None = self.metric.higher_is_better
        return better

    def update(self, **inputs: Any) -> None:
        self.metric.update(**inputs)
        if getattr(self.metric, "validate_args", False):
            self.metric.validate_args = False

    def compute(self) -> Any:
        return self.metric.compute()

    def reset(self) -> None:
        self.metric.reset()

    def get_extra_state(self) -> dict[str, int]:
        """How many batches it has seen: torchmetrics warns of a value of none."""
        return {"updates": self.metric.update_count}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.metric._update_count = state["updates"]
        self.metric._computed = None
