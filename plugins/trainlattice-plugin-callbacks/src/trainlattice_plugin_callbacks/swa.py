"""The mean of the weights at ends of epochs (Izmailov et al. 2018, arXiv:1803.05407), evaluated in their place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from torch.optim.swa_utils import get_swa_multi_avg_fn

from trainlattice.training.callbacks import Callback, PhaseName
from trainlattice.training.mode import Parts
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.averages import Averages
from trainlattice_plugin_callbacks.options import SWAOptions


class SWA(Callback):
    """After the training part of each epoch from ``start_epoch`` on the weights join the mean, before the epoch is
    validated. No pass over the data computes statistics of batch normalisation anew (``update_bn``): with
    ``average_buffers`` they are the mean too."""

    def __init__(self, options: SWAOptions, parts: Parts) -> None:
        self.start_epoch = options.start_epoch
        self.averages = Averages(parts.models, buffers=options.average_buffers)

    def on_phase_end(self, trainer: Trainer, phase: PhaseName) -> None:
        if phase == "train" and trainer.epoch_is_over and trainer.epoch_number >= self.start_epoch:
            self.averages.update(get_swa_multi_avg_fn())

    def evaluating(self, models: Mapping[str, nn.Module]) -> AbstractContextManager[None]:
        return self.averages.in_place()

    def state_dict(self) -> dict[str, Any]:
        return self.averages.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.averages.load_state_dict(state)
