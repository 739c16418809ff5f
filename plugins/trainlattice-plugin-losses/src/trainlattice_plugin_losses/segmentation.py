"""Losses of regions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainlattice.contracts.records import DatasetContract
from trainlattice_plugin_losses.binary import require_yes_or_no
from trainlattice_plugin_losses.class_weights import require_a_weight_for_each, weights_for, weights_tensor
from trainlattice_plugin_losses.options import DiceOptions
from trainlattice_plugin_losses.precision import at_least_float32
from trainlattice_plugin_losses.shapes import lacks_channel, require_same_shape


class Dice(nn.Module):
    """``1 - (2 sum p g + smooth) / (sum p + sum g + smooth)``, the sums over the pixels of one class in one sample,
    the mean over classes; with ``squared``, ``p^2`` and ``g^2`` in the denominator (Milletari et al. 2016,
    arXiv:1606.04797).

    Logits ``[B, C, ...]`` and class indices ``[B, ...]``; with ``binary`` a yes or no of the shape of the logits,
    which may lack their only channel. Each sample has a loss of its own, so that no other sample of its batch
    changes it. With ``reduction: mean`` it is the mean over samples; one whose every pixel is ignored does not
    count.
    """

    class_weights: Tensor | None

    def __init__(self, options: DiceOptions, data: DatasetContract | None = None) -> None:
        super().__init__()
        if not options.binary:
            require_a_weight_for_each(options.class_weights, data)
        self.task = None if options.binary else "classification"
        self.broadcasts = options.binary  # shapes are compared here, and a channel that lacks is meant
        self.binary, self.squared, self.smooth = options.binary, options.squared, options.smooth
        self.ignore_index = options.ignore_index
        self.reduction = options.reduction
        self.register_buffer("class_weights", weights_tensor(options.class_weights), persistent=False)

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        pred = at_least_float32(pred)
        if self.binary:
            found, truth, kept = self._of_yes_or_no(pred, target)
        else:
            found, truth, kept = self._of_classes(pred, target)
        found, truth = found * kept, truth * kept
        overlap = (found * truth).sum(2)
        size = (found.square() + truth.square() if self.squared else found + truth).sum(2)
        dice = (2.0 * overlap + self.smooth) / (size + self.smooth)
        if self.class_weights is None:
            losses = 1.0 - dice.mean(1)
        else:
            weights = weights_for(pred, self.class_weights)
            losses = 1.0 - (dice * weights).sum(1) / weights.sum()
        if self.reduction == "sum":
            return losses.sum()
        return losses.sum() / kept.flatten(1).any(1).sum()  # a sample of which no pixel counts costs 0

    def num_terms(self, target: Tensor) -> Tensor:
        """Samples of which any pixel counts; asked on the host, where targets can be looked at without waiting for
        the device."""
        kept = target != self.ignore_index
        if self.binary:
            require_yes_or_no(target, kept)
        return kept.reshape(len(kept), -1).any(1).sum()  # [B] has no pixels, and forward says so

    def _of_classes(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Probabilities and one-hot targets ``[B, C, pixels]``, and which pixels count ``[B, 1, pixels]``."""
        expected = pred.shape[:1] + pred.shape[2:]
        if pred.dim() < 3 or target.shape != expected:
            raise ValueError(
                f"logits have the shape {list(pred.shape)} and targets {list(target.shape)}: regions need logits "
                "[B, C, ...] and targets [B, ...]"
            )
        kept = (target != self.ignore_index).flatten(1).unsqueeze(1)
        classes = target.flatten(1).unsqueeze(1).where(kept, 0)
        found = pred.softmax(1).flatten(2)
        # scatter refuses a class that does not exist; a comparison with each class would not see it.
        return found, torch.zeros_like(found).scatter(1, classes, 1.0), kept

    def _of_yes_or_no(self, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same, and which pixels count ``[B, C, pixels]``."""
        if lacks_channel(pred, target):
            target = target.unsqueeze(1)
        require_same_shape(pred, target)
        if pred.dim() < 3:
            raise ValueError(f"logits have the shape {list(pred.shape)}: regions need [B, C, ...]")
        kept = (target != self.ignore_index).flatten(2)
        truth = target.flatten(2).where(kept, 0).to(pred.dtype)
        return pred.sigmoid().flatten(2), truth, kept
