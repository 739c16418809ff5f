"""A multilayer perceptron."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from trainlattice_plugin_models.options import MLPOptions


class MLP(nn.Module):
    """Flatten, then Linear -> GELU -> Dropout for each hidden width, then Linear.

    Takes ``[N, ...]`` with ``input_dim`` values per sample, returns logits ``[N, num_classes]``.
    """

    def __init__(self, options: MLPOptions) -> None:
        super().__init__()
        widths = (options.input_dim, *options.hidden_dims)
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU(), nn.Dropout(options.dropout)]
        layers.append(nn.Linear(widths[-1], options.num_classes))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)
