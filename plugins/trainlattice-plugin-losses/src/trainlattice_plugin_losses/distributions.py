"""Losses between two distributions."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from trainlattice_plugin_losses.options import KLDivOptions
from trainlattice_plugin_losses.precision import at_least_float32
from trainlattice_plugin_losses.shapes import require_same_shape

_ROUNDING = 1e-3  # of a logarithm that somebody else took


class KLDivergence(nn.Module):
    """``sum target (log target - pred)`` (Kullback and Leibler 1951), where pred are log-probabilities or with
    ``from_logits`` logits; both ``[N, C, ...]`` of one shape.

    ``batchmean`` divides by N, ``mean`` by the number of values.
    """

    task = None

    def __init__(self, options: KLDivOptions) -> None:
        super().__init__()
        self.reduction = options.reduction
        self.log_target = options.log_target
        self.from_logits = options.from_logits

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        require_same_shape(pred, target)
        pred = at_least_float32(pred)
        if self.from_logits:
            pred = pred.log_softmax(1)
        if self.reduction == "mean":  # by its name, torch would warn at every step that it is no divergence
            return functional.kl_div(pred, target, reduction="none", log_target=self.log_target).mean()
        return functional.kl_div(pred, target, reduction=self.reduction, log_target=self.log_target)

    def num_terms(self, target: Tensor) -> int:
        """Samples, or with ``mean`` values; asked on the host, where targets can be looked at without waiting for
        the device."""
        self._require_probabilities(target)
        return target.numel() if self.reduction == "mean" else len(target)

    def _require_probabilities(self, target: Tensor) -> None:
        if not target.is_floating_point():
            kind = str(target.dtype).removeprefix("torch.")
            raise ValueError(f"targets are {kind}, and a divergence takes a probability for each class")
        if target.numel() == 0:
            return
        low, high = target.aminmax()
        if self.log_target and not high <= _ROUNDING:
            raise ValueError(f"a target is {high.item():g}, and with log_target none is above 0")
        if not self.log_target and not low >= 0:
            raise ValueError(f"a target is {low.item():g}, and a probability is not below 0 (see log_target)")
