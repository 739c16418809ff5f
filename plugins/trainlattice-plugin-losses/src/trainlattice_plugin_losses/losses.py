"""The built-in losses: torch's functions, with the shapes checked first.

A loss is called with predictions and targets and returns a scalar. ``task``, ``reduction`` and
``num_terms`` tell the trainer how to report it.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from trainlattice_plugin_losses.options import CrossEntropyOptions, RegressionOptions


class CrossEntropy(nn.Module):
    """Cross entropy of logits ``[N, C, ...]`` and class indices ``[N, ...]`` (int64).

    With ``reduction: mean`` it is the mean over targets other than ``ignore_index``.
    """

    task = "classification"

    def __init__(self, options: CrossEntropyOptions) -> None:
        super().__init__()
        self.label_smoothing = options.label_smoothing
        self.ignore_index = options.ignore_index
        self.reduction = options.reduction

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            pred,
            target,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            reduction=self.reduction,
        )

    def num_terms(self, target: Tensor) -> Tensor:
        """Targets that count."""
        return (target != self.ignore_index).sum()


class _Regression(nn.Module):
    task = "regression"

    def __init__(self, options: RegressionOptions) -> None:
        super().__init__()
        self.reduction = options.reduction

    def num_terms(self, target: Tensor) -> int:
        """Values that are compared."""
        return target.numel()

    @staticmethod
    def require_same_shape(pred: Tensor, target: Tensor) -> None:
        """Broadcasting would compare every prediction with every target, without a word."""
        if pred.shape != target.shape:
            raise ValueError(
                f"predictions have the shape {list(pred.shape)} and targets {list(target.shape)}: they must "
                "be equal"
            )


class MeanSquaredError(_Regression):
    """Mean of ``(pred - target)^2`` over all values; both ``[N, ...]`` of one shape."""

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        self.require_same_shape(pred, target)
        return functional.mse_loss(pred, target, reduction=self.reduction)


class L1(_Regression):
    """Mean of ``|pred - target|`` over all values; both ``[N, ...]`` of one shape."""

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        self.require_same_shape(pred, target)
        return functional.l1_loss(pred, target, reduction=self.reduction)
