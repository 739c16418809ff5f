"""An exponential moving average of the weights, evaluated in their place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from trainlattice.training.callbacks import Callback
from trainlattice.training.mode import Parts
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.averages import Averages
from trainlattice_plugin_callbacks.options import EMAOptions

averaging = lru_cache(maxsize=1)(get_ema_multi_avg_fn)
"""By decay: it is one for most steps."""


class EMA(Callback):
    """After a step: ``average = decay * average + (1 - decay) * weights``; the first one takes the weights. A step
    that was skipped is none. Validations and ``trainlattice evaluate`` see the averages."""

    def __init__(self, options: EMAOptions, parts: Parts) -> None:
        self.options = options
        self.averages = Averages(parts.models, buffers=options.average_buffers)
        self.step = 0

    def on_run_start(self, trainer: Trainer) -> None:
        self.step = trainer.state.global_step

    def on_step_end(self, trainer: Trainer) -> None:
        step = trainer.state.global_step
        taken, self.step = step != self.step, step
        if taken and step % self.options.every_steps == 0:
            self.averages.update(averaging(self._decay()))

    def _decay(self) -> float:
        t = self.averages.updates
        return min(self.options.decay, (1 + t) / (10 + t)) if self.options.warmup else self.options.decay

    def evaluating(self, models: Mapping[str, nn.Module]) -> AbstractContextManager[None]:
        return self.averages.in_place()

    def state_dict(self) -> dict[str, Any]:
        return self.averages.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.averages.load_state_dict(state)
