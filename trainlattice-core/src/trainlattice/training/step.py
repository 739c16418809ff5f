"""Carries out one window: the phases of the mode, each from zero_grad to the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor

from trainlattice.training.mode import Mode, Weight, Window
from trainlattice.training.update import Outcome, Update

Weighting = Literal["samples", "fixed"]


class Stepper:
    """The one step function of every mode.

    :param weighting: ``samples`` multiplies each micro-batch loss by its share n_i / N of the window's weight, so
        that accumulating k batches equals one batch k times as large, the ragged last window included; ``fixed``
        multiplies it by 1 / accumulate.
    """

    def __init__(
        self,
        mode: Mode,
        updates: Mapping[str, Update],
        autocast: AbstractContextManager[Any],
        *,
        accumulate: int = 1,
        weighting: Weighting = "samples",
    ) -> None:
        self.mode = mode
        self.updates = updates
        self.autocast = autocast
        self.fixed_share = 1.0 / accumulate if weighting == "fixed" else None

    def run(self, window: Window, weights: Sequence[Weight]) -> list[Outcome]:
        """One step of the run: what became of each of its phases."""
        shares = self._shares(weights)
        outcomes: list[Outcome] = []
        for phase in self.mode.phases(window):
            update = self.updates[phase.update]
            update.zero_grad()
            losses = []
            for container, share in zip(window, shares, strict=True):
                with self.autocast:
                    loss = phase.loss(container)
                weighted = _weighted(loss, share) if phase.averaged else loss
                losses.append(weighted)
                update.backward(weighted)
            outcomes.append(update.apply(losses))
        return outcomes

    def _shares(self, weights: Sequence[Weight]) -> list[Weight]:
        if self.fixed_share is not None:
            return [self.fixed_share] * len(weights)
        if len(weights) == 1:
            return [1.0]
        total = sum(weights)
        if not isinstance(total, Tensor) and total == 0:
            return [0.0] * len(weights)
        return [weight / total for weight in weights]


def _weighted(loss: Tensor, share: Weight) -> Tensor:
    if isinstance(share, Tensor):
        # A micro-batch without a supervised target has the mean 0 / 0: it has no share in the window.
        return torch.where(share > 0, loss * share, torch.zeros_like(loss))
    return loss if share == 1.0 else loss * share
