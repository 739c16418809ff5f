"""Carries out one window: the phases of the mode, each from zero_grad to the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from trainlattice.training.mode import Mode, Phase, Weight, Window
from trainlattice.training.update import Outcome, Update

Weighting = Literal["samples", "fixed"]


@dataclass(frozen=True)
class StepResult:
    """What became of one window.

    :param outcomes: of each phase.
    :param measured: by micro-batch, the mode's metrics.
    :param weights: of the micro-batches.
    :param samples: in the window.
    """

    outcomes: list[Outcome]
    measured: list[dict[str, Tensor]]
    weights: list[Weight]
    samples: int

    @property
    def applied(self) -> bool:
        """Whether any phase changed a weight."""
        return "applied" in self.outcomes

    @property
    def finite(self) -> bool:
        """Whether no phase was left out for what is not finite, as far as the host knows."""
        return "skipped as not finite" not in self.outcomes


class Stepper:
    """The one step function of every mode.

    :param weighting: ``samples`` multiplies each micro-batch loss by its share n_i / N of the window's weight, so
        that accumulating k batches equals one batch k times as large, the ragged last window included; ``fixed``
        multiplies it by 1 / accumulate.
    :param keep: whether somebody looks at the containers after the step; else what is in them is let go as soon as
        it has been measured.
    """

    def __init__(
        self,
        mode: Mode,
        updates: Mapping[str, Update],
        autocast: AbstractContextManager[Any],
        *,
        accumulate: int = 1,
        weighting: Weighting = "samples",
        keep: bool = True,
    ) -> None:
        self.mode = mode
        self.updates = updates
        self.autocast = autocast
        self.keep = keep
        self.fixed_share = 1.0 / accumulate if weighting == "fixed" else None

    def run(self, window: Window) -> StepResult:
        """One step of the run."""
        weights = [self.mode.weight(container) for container in window]
        samples = sum(self.mode.samples(container) for container in window)
        shares = self._shares(weights)
        outcomes: list[Outcome] = []
        measured: list[dict[str, Tensor]] = []
        for phase in self.mode.phases(window):
            update = self.updates[phase.update]
            update.zero_grad()
            losses = []
            for container, share in zip(window, shares, strict=True):
                losses.append(self._backward(phase, update, container, share))
                if phase.last:
                    measured.append(self._measure(container))
            outcomes.append(update.apply(losses))
        if not measured:
            measured = [self._measure(container) for container in window]
        return StepResult(outcomes, measured, weights, samples)

    def _backward(self, phase: Phase, update: Update, container: dict[str, Any], share: Weight) -> Tensor:
        """Forward and backward of one micro-batch; the loss, weighted."""
        with self.autocast:
            loss = phase.loss(container)
        weighted = _weighted(loss, share) if phase.averaged else loss
        update.backward(weighted)
        return weighted.detach()

    def _measure(self, container: dict[str, Any]) -> dict[str, Tensor]:
        measured = self.mode.measure(container)
        if not self.keep:
            container.clear()
        return measured

    def _shares(self, weights: Sequence[Weight]) -> Sequence[Weight]:
        if self.fixed_share is not None:
            return [self.fixed_share] * len(weights)
        total = sum(weights)
        if not isinstance(total, Tensor) and total == 0:
            return [0.0] * len(weights)
        return [weight / total for weight in weights]


def _weighted(loss: Tensor, share: Weight) -> Tensor:
    if isinstance(share, Tensor):
        # A micro-batch without a supervised target has the mean 0 / 0: it has no share in the window.
        return torch.where(share > 0, loss * share, torch.zeros_like(loss))
    return loss if share == 1.0 else loss * share
