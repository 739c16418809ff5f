"""Sums of metrics over many batches, kept on the device until somebody asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class WeightedMeans:
    """Weighted means of named values, in float64 whatever the precision of the run.

    ``mean = sum(weight_i * value_i) / sum(weight_i)``; a value that was never added, or whose weights are all
    zero, has no mean.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._weights: dict[str, float] = {}

    @property
    def names(self) -> list[str]:
        return list(self._sums)

    def add(self, values: Mapping[str, Tensor | tuple[Tensor, float]], weight: float) -> None:
        """Adds scalar tensors; no copy to the host. A value of weight zero counts for nothing, NaN included.

        :param values: a pair is a value with a weight of its own.
        """
        for name, given in values.items():
            value, weight_of = given if isinstance(given, tuple) else (given, weight)
            if not weight_of:
                continue
            term = value.detach().to(torch.float64) * weight_of
            held = self._sums.get(name)
            self._sums[name] = term if held is None else held + term
            self._weights[name] = self._weights.get(name, 0.0) + weight_of

    def compute(self) -> dict[str, float]:
        """The means, copied to the host in one transfer."""
        if not self._sums:
            return {}
        totals = torch.stack(list(self._sums.values())).tolist()
        return {name: total / self._weights[name] for name, total in zip(self._sums, totals, strict=True)}

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "weights": dict(self._weights)}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self._sums = {name: value.to(device) for name, value in state["sums"].items()}
        self._weights = {name: float(weight) for name, weight in state["weights"].items()}
