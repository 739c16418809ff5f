"""Sums of metrics over many batches, kept on the device until somebody asks."""

from __future__ import annotations

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
        self._weights: dict[str, float | Tensor] = {}

    def add(self, values: dict[str, Tensor], weight: float | Tensor) -> None:
        """Adds scalar tensors; no copy to the host. A value of weight zero counts for nothing, NaN included."""
        if not isinstance(weight, Tensor) and not weight:
            return
        for name, value in values.items():
            term = value.detach().to(torch.float64) * weight
            if isinstance(weight, Tensor):
                term = torch.where(weight > 0, term, torch.zeros_like(term))
            held = self._sums.get(name)
            self._sums[name] = term if held is None else held + term
            self._weights[name] = self._weights.get(name, 0.0) + weight

    def compute(self) -> dict[str, float]:
        """The means, copied to the host in one transfer."""
        if not self._sums:
            return {}
        sums = list(self._sums.values())
        weights = [
            weight.to(torch.float64) if isinstance(weight, Tensor) else sums[0].new_tensor(weight)
            for weight in self._weights.values()
        ]
        totals, counts = torch.stack([torch.stack(sums), torch.stack(weights)]).tolist()
        return {
            name: total / count
            for name, total, count in zip(self._sums, totals, counts, strict=True)
            if count
        }

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "weights": dict(self._weights)}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        def placed(values: dict[str, Any]) -> dict[str, Any]:
            return {k: v.to(device) if isinstance(v, Tensor) else v for k, v in values.items()}

        self._sums, self._weights = placed(state["sums"]), placed(state["weights"])
