"""Losses of measurements: both ``[N, ...]`` of one shape."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from trainlattice_plugin_losses.elementwise import Elementwise
from trainlattice_plugin_losses.options import RegressionOptions, SmoothL1Options


class _Regression(Elementwise):
    task = "regression"

    def __init__(self, options: RegressionOptions) -> None:
        super().__init__(options.reduction)


class MeanSquaredError(_Regression):
    """Mean of ``(pred - target)^2`` over all values."""

    def compare(self, pred: Tensor, target: Tensor, reduction: str) -> Tensor:
        return functional.mse_loss(pred, target, reduction=reduction)


class L1(_Regression):
    """Mean of ``|pred - target|`` over all values."""

    def compare(self, pred: Tensor, target: Tensor, reduction: str) -> Tensor:
        return functional.l1_loss(pred, target, reduction=reduction)


class SmoothL1(_Regression):
    """Mean of ``d^2 / (2 beta)`` where ``d = |pred - target| < beta``, and of ``d - beta / 2`` elsewhere (Girshick
    2015, arXiv:1504.08083)."""

    def __init__(self, options: SmoothL1Options) -> None:
        super().__init__(options)
        self.beta = options.beta

    def compare(self, pred: Tensor, target: Tensor, reduction: str) -> Tensor:
        return functional.smooth_l1_loss(pred, target, reduction=reduction, beta=self.beta)
