"""A convolutional autoencoder."""

from __future__ import annotations

import itertools

from torch import Tensor, nn

from trainlattice_plugin_models.options import AutoencoderOptions


class Autoencoder(nn.Module):
    """Conv2d(3x3, stride 2) -> GELU for each entry of ``channels``, a linear layer to ``latent_dim`` values, and
    the same way back with ConvTranspose2d(4x4, stride 2), whose kernels cover every pixel equally often.

    Takes ``[N, C, H, W]`` and returns it reconstructed, in the same shape; ``encode`` and ``decode`` are its
    halves.
    """

    def __init__(self, options: AutoencoderOptions) -> None:
        super().__init__()
        channels, height, width = options.input_shape
        widths = (channels, *options.channels)
        factor = 2 ** len(options.channels)
        smallest = (widths[-1], height // factor, width // factor)
        values = smallest[0] * smallest[1] * smallest[2]
        down: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            down += [nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1), nn.GELU()]
        up: list[nn.Module] = []
        for before, after in itertools.pairwise(reversed(widths)):
            up += [nn.GELU(), nn.ConvTranspose2d(before, after, kernel_size=4, stride=2, padding=1)]
        if options.output == "sigmoid":
            up.append(nn.Sigmoid())
        self.encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(values, options.latent_dim))
        self.decoder = nn.Sequential(nn.Linear(options.latent_dim, values), nn.Unflatten(1, smallest), *up)

    def encode(self, x: Tensor) -> Tensor:
        """``[N, C, H, W]`` to ``[N, latent_dim]``."""
        return self.encoder(x)

    def decode(self, latent: Tensor) -> Tensor:
        """``[N, latent_dim]`` to ``[N, C, H, W]``."""
        return self.decoder(latent)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))
