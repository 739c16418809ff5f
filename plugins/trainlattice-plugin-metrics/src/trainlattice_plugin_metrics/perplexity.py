"""Perplexity of a language model."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import text

from trainlattice_plugin_metrics.measure import Measure
from trainlattice_plugin_metrics.options import PerplexityOptions


def perplexity(options: PerplexityOptions) -> Measure:
    return Measure(Perplexity(options.ignore_index).set_dtype(torch.float64))


class Perplexity(text.Perplexity):
    """exp(mean of -log p(token)), of logits ``[B, T, V]`` and tokens ``[B, T]``.

    Torchmetrics takes the logarithm of a softmax, which is infinite where that underflows, and picks by a mask,
    which waits for the device.
    """

    def update(self, preds: Tensor, target: Tensor) -> None:
        if preds.dim() != 3 or preds.shape[:2] != target.shape:
            raise ValueError(
                f"logits are [B, T, V] and tokens [B, T]; here are {list(preds.shape)} and {list(target.shape)}"
            )
        assert self.ignore_index is not None
        self.total_log_probs += functional.cross_entropy(
            preds.flatten(0, 1), target.flatten(), ignore_index=self.ignore_index, reduction="sum"
        )
        self.count += (target != self.ignore_index).sum()
