"""Losses that compare value by value: what they share."""

from __future__ import annotations

from torch import Tensor, nn

from trainlattice_plugin_losses.shapes import require_same_shape


class Elementwise(nn.Module):
    """Mean or sum over values; predictions and targets have one shape ``[N, ...]``.

    A mask leaves values out: they count neither above nor below the fraction. Who gives one to the loss gives it to
    ``num_terms`` too.
    """

    def __init__(self, reduction: str) -> None:
        super().__init__()
        self.reduction = reduction

    def compare(self, pred: Tensor, target: Tensor, reduction: str) -> Tensor:
        """torch's function."""
        raise NotImplementedError

    def forward(self, pred: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """
        :param mask: true or 1 where a value counts; as many dimensions as the target, each of its size or 1.
        """
        require_same_shape(pred, target)
        kept = self.kept(target, mask)
        if kept is None:
            return self.compare(pred, target, self.reduction)
        # Both: a NaN that does not count would still spoil the gradient.
        losses = self.compare(pred, target.where(kept, 0), "none").where(kept, 0)
        return losses.sum() if self.reduction == "sum" else losses.sum() / kept.sum()

    def num_terms(self, target: Tensor, *, mask: Tensor | None = None) -> int | Tensor:
        """Values that count."""
        kept = self.kept(target, mask)
        return target.numel() if kept is None else kept.sum()

    def kept(self, target: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which values count, in the target's shape; None: all."""
        if mask is None:
            return None
        if mask.dim() != target.dim():
            raise ValueError(
                f"the mask has the shape {list(mask.shape)} and targets {list(target.shape)}: they must have as "
                "many dimensions"
            )
        return (mask != 0).expand_as(target)
