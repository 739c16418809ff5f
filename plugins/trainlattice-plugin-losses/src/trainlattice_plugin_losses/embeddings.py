"""Losses between two embeddings of a sample."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from trainlattice_plugin_losses.options import CosineEmbeddingOptions
from trainlattice_plugin_losses.precision import at_least_float32


class CosineEmbedding(nn.Module):
    """``1 - cos(a, b)`` where the target ``[N]`` is 1, and ``max(0, cos(a, b) - margin)`` where it is -1.

    The two embeddings are predictions ``[N, 2, D]``, a pair of ``[N, D]``, or predictions ``[N, D]`` and ``other``.
    """

    task = None
    broadcasts = True  # predictions have dimensions that targets lack

    def __init__(self, options: CosineEmbeddingOptions) -> None:
        super().__init__()
        self.margin = options.margin
        self.reduction = options.reduction

    def forward(
        self, pred: Tensor | tuple[Tensor, Tensor], target: Tensor, *, other: Tensor | None = None
    ) -> Tensor:
        first, second = (at_least_float32(embedding) for embedding in _pair(pred, other))
        if first.dim() != 2 or first.shape != second.shape:
            raise ValueError(
                f"the embeddings have the shapes {list(first.shape)} and {list(second.shape)}: both must be [N, D]"
            )
        if target.shape != first.shape[:1]:
            raise ValueError(
                f"the embeddings have the shape {list(first.shape)} and targets {list(target.shape)}: targets must "
                f"be {list(first.shape[:1])}"
            )
        return functional.cosine_embedding_loss(
            first, second, target, margin=self.margin, reduction=self.reduction
        )

    def num_terms(self, target: Tensor) -> int:
        """Pairs; asked on the host, where targets can be looked at without waiting for the device."""
        if not ((target == 1) | (target == -1)).all():  # torch's loss of any other value is 0
            raise ValueError("a target is neither 1 (alike) nor -1 (different)")
        return target.numel()


def _pair(pred: Tensor | tuple[Tensor, Tensor], other: Tensor | None) -> tuple[Tensor, Tensor]:
    if not isinstance(pred, Tensor):
        first, second = pred
        return first, second
    if other is not None:
        return pred, other
    if pred.dim() != 3 or pred.shape[1] != 2:
        raise ValueError(f"predictions have the shape {list(pred.shape)}: two embeddings are [N, 2, D]")
    return pred[:, 0], pred[:, 1]
