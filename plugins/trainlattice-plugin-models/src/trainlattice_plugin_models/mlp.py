"""A multilayer perceptron."""

from __future__ import annotations

from torch import Tensor, nn

from trainlattice_plugin_models.layers import hidden_layers
from trainlattice_plugin_models.options import MLPOptions


class MLP(nn.Module):
    """Flatten, then Linear -> GELU -> Dropout for each hidden width, then Linear.

    Takes ``[N, ...]`` with ``input_dim`` values per sample, returns logits ``[N, num_classes]``.
    """

    def __init__(self, options: MLPOptions) -> None:
        super().__init__()
        widths = (options.input_dim, *options.hidden_dims)
        hidden = hidden_layers(widths, options.dropout)
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(widths[-1], options.num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
