"""Losses of a yes or no for each output: logits and targets in [0, 1], both ``[N, ...]`` of one shape.

Targets may be numbers, integers or booleans, and lack the channel of logits ``[N, 1, ...]``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from trainlattice_plugin_losses.class_weights import weights_for, weights_tensor
from trainlattice_plugin_losses.elementwise import Elementwise
from trainlattice_plugin_losses.options import BCEOptions, FocalOptions
from trainlattice_plugin_losses.precision import at_least_float32
from trainlattice_plugin_losses.shapes import lacks_channel


def require_yes_or_no(target: Tensor, kept: Tensor | None) -> None:
    """
    :param target: on the host.
    :raises ValueError: for a target outside [0, 1], which would make a loss that falls without end.
    """
    if target.numel() == 0:
        return
    low, high = (target if kept is None else target.where(kept, 0)).aminmax()
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"targets lie between {low.item():g} and {high.item():g}, and a yes or no lies in [0, 1]"
        )


class _YesOrNo(Elementwise):
    task = None
    broadcasts = True  # shapes are compared here, and a channel that lacks is meant
    ignore_index: int | None

    def forward(self, pred: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        if lacks_channel(pred, target):
            target, mask = target.unsqueeze(1), None if mask is None else mask.unsqueeze(1)
        return super().forward(pred, target, mask=mask)

    def num_terms(self, target: Tensor, *, mask: Tensor | None = None) -> int | Tensor:
        """Values that count; asked on the host, where targets can be looked at without waiting for the device."""
        require_yes_or_no(target, self.kept(target, mask))
        return super().num_terms(target, mask=mask)

    def kept(self, target: Tensor, mask: Tensor | None) -> Tensor | None:
        masked = super().kept(target, mask)
        if self.ignore_index is None:
            return masked
        counted = target != self.ignore_index
        return counted if masked is None else counted & masked


class BinaryCrossEntropy(_YesOrNo):
    """``-(pos_weight y log p + (1 - y) log(1 - p))`` with ``p = sigmoid(pred)``; the mean is over values, whatever
    they weigh."""

    pos_weight: Tensor | None
    class_weights: Tensor | None

    def __init__(self, options: BCEOptions) -> None:
        super().__init__(options.reduction)
        self.ignore_index = options.ignore_index
        self.register_buffer("pos_weight", weights_tensor(options.pos_weight), persistent=False)
        self.register_buffer("class_weights", weights_tensor(options.class_weights), persistent=False)

    def compare(self, pred: Tensor, target: Tensor, reduction: str) -> Tensor:
        pred = at_least_float32(pred)
        return functional.binary_cross_entropy_with_logits(
            pred,
            target.to(pred.dtype),
            weight=_over_channels(pred, self.class_weights, "class_weights"),
            pos_weight=_over_channels(pred, self.pos_weight, "pos_weight"),
            reduction=reduction,
        )


class BinaryFocal(_YesOrNo):
    """``-alpha (1 - p)^gamma log p``, where p is the probability of the right answer and alpha the weight of it
    (Lin et al. 2017, arXiv:1708.02002); the mean is over values, as torchvision has it, whatever they weigh."""

    def __init__(self, options: FocalOptions) -> None:
        super().__init__(options.reduction)
        self.ignore_index = options.ignore_index
        self.gamma, self.alpha = options.gamma, options.alpha

    def compare(self, pred: Tensor, target: Tensor, reduction: str) -> Tensor:
        """Always by value: ``ignore_index`` leaves some out."""
        pred = at_least_float32(pred)
        yes = target.to(pred.dtype)
        nll = functional.binary_cross_entropy_with_logits(pred, yes, reduction="none")
        # A sigmoid of its own for each side keeps what 1 - p loses near p = 1.
        missing = yes * torch.sigmoid(-pred) + (1.0 - yes) * torch.sigmoid(pred)
        losses = missing.clamp_min(torch.finfo(pred.dtype).tiny) ** self.gamma * nll
        if self.alpha is not None:
            losses = losses * (self.alpha * yes + (1.0 - self.alpha) * (1.0 - yes))
        return losses


def _over_channels(pred: Tensor, weights: Tensor | None, option: str) -> Tensor | None:
    """One weight for all, or one for each channel of ``[N, C, ...]`` in a shape that broadcasts over it."""
    if weights is None:
        return None
    if len(weights) == 1:
        return weights.to(pred.device, pred.dtype)
    return weights_for(pred, weights, option).view(-1, *[1] * (pred.dim() - 2))
