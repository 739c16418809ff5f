"""Carries out one window: the phases of the mode, each from zero_grad to the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from trainlattice.training.mode import Mode, Window
from trainlattice.training.update import Update


class Stepper:
    """The one step function of every mode."""

    def __init__(
        self, mode: Mode, updates: Mapping[str, Update], autocast: AbstractContextManager[Any]
    ) -> None:
        self.mode = mode
        self.updates = updates
        self.autocast = autocast

    def run(self, window: Window, weights: list[int]) -> bool:
        """One step of the run; whether any weights were updated.

        Each micro-batch loss is multiplied by its share n_i / N of the window, so that accumulating k
        batches equals one batch k times as large, the ragged last window included.
        """
        total = sum(weights)
        applied = False
        for phase in self.mode.phases(window):
            update = self.updates[phase.update]
            update.zero_grad()
            for container, weight in zip(window, weights, strict=True):
                with self.autocast:
                    loss = phase.loss(container)
                update.backward(loss * (weight / total) if phase.averaged and weight != total else loss)
            applied = update.apply() or applied
        return applied
