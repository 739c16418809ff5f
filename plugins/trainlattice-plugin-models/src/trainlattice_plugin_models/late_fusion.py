"""A multilayer perceptron of several inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from trainlattice_plugin_models.layers import hidden_layers
from trainlattice_plugin_models.options import LateFusionOptions


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
                f"{name}_tower", nn.Sequential(nn.Flatten(), *hidden_layers(widths, options.dropout))
            )
            fused += widths[-1]
        widths = (fused, *options.hidden_dims)
        self.head = nn.Sequential(
            *hidden_layers(widths, options.dropout), nn.Linear(widths[-1], options.num_classes)
        )
        self._fitting: dict[str, torch.Size] = {}

    def forward(self, **inputs: Tensor) -> Tensor:
        """
        :raises ValueError: for inputs of other names or widths than those of ``input_dims``.
        """
        shapes = {name: x.shape[1:] for name, x in inputs.items()}
        if torch.compiler.is_compiling():  # a compiled call checks nothing: its guards know the shapes
            self._require_fit(shapes)
        elif shapes != self._fitting:
            self._require_fit(shapes)
            self._fitting = shapes
        towers = [self.get_submodule(f"{name}_tower")(inputs[name]) for name in self.input_dims]
        return self.head(torch.cat(towers, 1))

    def _require_fit(self, shapes: Mapping[str, torch.Size]) -> None:
        found = {name: math.prod(shape) for name, shape in shapes.items()}
        if found != self.input_dims:
            raise ValueError(f"the inputs have the widths {found}, and input_dims says {self.input_dims}")
