"""The mean of any key."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from trainlattice_plugin_metrics.measure import Measure


def mean() -> Measure:
    return Measure(Mean())


class Mean(Metric):
    """Mean of all values of a key: sum of value * weight / sum of weight, in float64.

    Not torchmetrics' MeanMetric, which looks for NaN in each batch, and so waits for the device, or else forgets
    the weights.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, value: Tensor, weight: Any = None) -> None:
        """
        :param value: ``[N, ...]``, or a mean over the batch, which needs a weight.
        :param weight: a number, or a tensor that can be broadcast to the values.
        """
        if not isinstance(value, Tensor):
            raise TypeError(f"value is a {type(value).__name__}, and a tensor is needed")
        if weight is None and value.dim() == 0:
            raise ValueError(
                "value is one number for the batch: name the key of its weight too, weight: weight"
            )
        value = value.double()
        if weight is None:
            self.total += value.sum()
            self.weight += value.numel()
        else:
            weights = torch.ones_like(value) * weight
            self.total += (value * weights).sum()
            self.weight += weights.sum()

    def compute(self) -> Tensor:
        return self.total / self.weight
