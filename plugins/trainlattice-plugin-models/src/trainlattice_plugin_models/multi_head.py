"""A multilayer perceptron with several heads."""

from __future__ import annotations

from torch import Tensor, nn

from trainlattice_plugin_models.layers import hidden_layers
from trainlattice_plugin_models.options import MultiHeadOptions


class MultiHead(nn.Module):
    """Flatten and the hidden layers of an MLP, which all heads share, then a Linear for each head.

    Takes ``[N, ...]`` with ``input_dim`` values per sample, returns ``[N, width]`` by name of head: the keys
    ``pred/<name>``. The head ``kind`` is the submodule ``kind_head``.
    """

    def __init__(self, options: MultiHeadOptions) -> None:
        super().__init__()
        widths = (options.input_dim, *options.hidden_dims)
        self.trunk = nn.Sequential(nn.Flatten(), *hidden_layers(widths, options.dropout))
        self.names = tuple(options.heads)
        for name, width in options.heads.items():
            self.add_module(f"{name}_head", nn.Linear(widths[-1], width))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        shared = self.trunk(x)
        return {name: self.get_submodule(f"{name}_head")(shared) for name in self.names}
