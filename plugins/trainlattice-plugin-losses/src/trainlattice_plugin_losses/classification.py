"""Losses of one class out of several: predictions ``[N, C, ...]``, class indices ``[N, ...]`` (int64).

A loss is called with predictions and targets and returns a scalar. ``task``, ``reduction``, ``ignore_index`` and
``num_terms`` tell the trainer how to report and to accumulate it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainlattice.contracts.records import DatasetContract
from trainlattice_plugin_losses.binary import BinaryFocal
from trainlattice_plugin_losses.class_weights import (
    require_a_weight_for_each,
    terms_that_count,
    weights_for,
    weights_tensor,
)
from trainlattice_plugin_losses.options import CrossEntropyOptions, FocalOptions, NLLOptions
from trainlattice_plugin_losses.precision import at_least_float32


class _ClassIndices(nn.Module):
    """With ``reduction: mean`` the sum is divided by the targets other than ``ignore_index``, or with class weights
    by the sum of their weights."""

    task = "classification"
    class_weights: Tensor | None

    def __init__(
        self, options: CrossEntropyOptions | NLLOptions | FocalOptions, data: DatasetContract | None = None
    ) -> None:
        super().__init__()
        require_a_weight_for_each(options.class_weights, data)
        self.ignore_index = options.ignore_index
        self.reduction = options.reduction
        self.host_weights = weights_tensor(options.class_weights)
        self.register_buffer("class_weights", self.host_weights, persistent=False)

    def compare(self, pred: Tensor, target: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
        """torch's function."""
        raise NotImplementedError

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        pred = at_least_float32(pred)
        weights = None if self.class_weights is None else weights_for(pred, self.class_weights)
        if not self.adds_up_itself(pred):
            return self.compare(pred, target, weights, self.reduction)
        total = self.compare(pred, target, weights, "none").sum()
        if self.reduction == "sum":
            return total
        return total / terms_that_count(target, self.ignore_index, weights)

    def adds_up_itself(self, pred: Tensor) -> bool:
        """On CUDA torch adds up several targets of a sample in an order that changes from run to run."""
        return pred.is_cuda and pred.dim() > 2

    def num_terms(self, target: Tensor) -> Tensor:
        """Targets that count, or the sum of their classes' weights; asked on the host."""
        return terms_that_count(target, self.ignore_index, self.host_weights)


class CrossEntropy(_ClassIndices):
    """Cross entropy of logits."""

    def __init__(self, options: CrossEntropyOptions, data: DatasetContract | None = None) -> None:
        super().__init__(options, data)
        self.label_smoothing = options.label_smoothing

    def compare(self, pred: Tensor, target: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
        return functional.cross_entropy(
            pred,
            target,
            weights,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=reduction,
        )

    def adds_up_itself(self, pred: Tensor) -> bool:
        """torch's mean with both selects the targets that count: a shape that the host waits for."""
        both = self.class_weights is not None and self.label_smoothing > 0.0
        return both or super().adds_up_itself(pred)


class NegativeLogLikelihood(_ClassIndices):
    """``-pred[target]`` of log-probabilities."""

    def compare(self, pred: Tensor, target: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
        return functional.nll_loss(pred, target, weights, ignore_index=self.ignore_index, reduction=reduction)


class Focal(_ClassIndices):
    """``-(1 - p)^gamma log p`` of logits, where p is the probability of the right class (Lin et al. 2017,
    arXiv:1708.02002)."""

    def __init__(self, options: FocalOptions, data: DatasetContract | None = None) -> None:
        super().__init__(options, data)
        self.gamma = options.gamma

    def compare(self, pred: Tensor, target: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
        """Always by target: torch has no such loss that could add up."""
        nll = functional.cross_entropy(pred, target, ignore_index=self.ignore_index, reduction="none")
        # At 0 a power below 1 has an infinite slope, times a logarithm of 0.
        missing = (1.0 - torch.exp(-nll)).clamp_min(torch.finfo(nll.dtype).tiny)
        losses = missing**self.gamma * nll
        return losses if weights is None else losses * weights[target.where(target != self.ignore_index, 0)]

    def adds_up_itself(self, pred: Tensor) -> bool:
        return True


def focal(options: FocalOptions, data: DatasetContract | None = None) -> nn.Module:
    """Focal loss of classes, or with ``binary`` of each output by itself."""
    return BinaryFocal(options) if options.binary else Focal(options, data)
