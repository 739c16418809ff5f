"""Multilayer perceptrons: of one input, of several, and with several heads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainlattice_plugin_models.options import LateFusionOptions, MLPOptions, MultiHeadOptions


class MLP(nn.Module):
    """Flatten, then Linear -> GELU -> Dropout for each hidden width, then Linear.

    Takes ``[N, ...]`` with ``input_dim`` values per sample, returns logits ``[N, num_classes]``.
    """

    def __init__(self, options: MLPOptions) -> None:
        super().__init__()
        widths = (options.input_dim, *options.hidden_dims)
        hidden = _hidden_layers(widths, options.dropout)
        self.layers = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(widths[-1], options.num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class LateFusion(nn.Module):
    """Hidden layers for each input by itself, their outputs side by side, and an MLP above them.

    ``forward`` takes each name of ``input_dims`` as an argument, ``[N, ...]`` with that many values per sample, and
    returns logits ``[N, num_classes]``. The layers of the input ``left`` are the submodule ``left_tower``.
    """

    def __init__(self, options: LateFusionOptions) -> None:
        super().__init__()
        self.input_dims = dict(options.input_dims)
        fused = 0
        for name, width in self.input_dims.items():
            widths = (width, *options.tower_dims)
            self.add_module(
                f"{name}_tower", nn.Sequential(nn.Flatten(), *_hidden_layers(widths, options.dropout))
            )
            fused += widths[-1]
        widths = (fused, *options.hidden_dims)
        self.head = nn.Sequential(
            *_hidden_layers(widths, options.dropout), nn.Linear(widths[-1], options.num_classes)
        )

    def forward(self, **inputs: Tensor) -> Tensor:
        """
        :raises ValueError: for inputs of other names or widths than those of ``input_dims``.
        """
        found = {name: math.prod(x.shape[1:]) for name, x in inputs.items()}
        if found != self.input_dims:
            raise ValueError(f"the inputs have the widths {found}, and input_dims says {self.input_dims}")
        towers = [self.get_submodule(f"{name}_tower")(inputs[name]) for name in self.input_dims]
        return self.head(torch.cat(towers, 1))


class MultiHead(nn.Module):
    """Flatten and the hidden layers of an MLP, which all heads share, then a Linear for each head.

    Takes ``[N, ...]`` with ``input_dim`` values per sample, returns ``[N, width]`` by name of head: the keys
    ``pred/<name>``. The head ``kind`` is the submodule ``kind_head``.
    """

    def __init__(self, options: MultiHeadOptions) -> None:
        super().__init__()
        widths = (options.input_dim, *options.hidden_dims)
        self.trunk = nn.Sequential(nn.Flatten(), *_hidden_layers(widths, options.dropout))
        self.names = tuple(options.heads)
        for name, width in options.heads.items():
            self.add_module(f"{name}_head", nn.Linear(widths[-1], width))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        shared = self.trunk(x)
        return {name: self.get_submodule(f"{name}_head")(shared) for name in self.names}


def _hidden_layers(widths: Sequence[int], dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.GELU(), nn.Dropout(dropout)]
    return layers
