"""A plain convolutional network."""

from __future__ import annotations

from torch import Tensor, nn

from trainlattice_plugin_models.options import CNNOptions


class CNN(nn.Module):
    """Conv2d(3x3) -> GELU -> MaxPool2d(2) for each entry of ``channels``, then a linear head.

    Takes ``[N, C, H, W]``, returns logits ``[N, num_classes]``.
    """

    def __init__(self, options: CNNOptions) -> None:
        super().__init__()
        channels, height, width = options.input_shape
        blocks: list[nn.Module] = []
        for out in options.channels:
            blocks += [nn.Conv2d(channels, out, kernel_size=3, padding=1), nn.GELU(), nn.MaxPool2d(2)]
            channels = out
        factor = 2 ** len(options.channels)
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels * (height // factor) * (width // factor), options.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).flatten(1))
