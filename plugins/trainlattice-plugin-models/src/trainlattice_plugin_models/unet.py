"""A small U-Net."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from trainlattice_plugin_models.options import UNetOptions


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015, arXiv:1505.04597) with padded convolutions and GroupNorm: each pixel's logits
    come from a way down through coarser levels and back up, with what each level saw put beside what comes up.

    GroupNorm, in place of today's usual BatchNorm, keeps samples apart, so that accumulation equals a larger batch.
    Takes ``[N, in_channels, H, W]``, returns logits ``[N, num_classes, H, W]``; H and W are multiples of
    ``2 ** (len(channels) - 1)``.
    """

    def __init__(self, options: UNetOptions) -> None:
        super().__init__()
        channels = options.channels
        self.divisor = 2 ** (len(channels) - 1)
        self.down = nn.ModuleList(
            _block(before, after) for before, after in itertools.pairwise((options.in_channels, *channels))
        )
        self.pool = nn.MaxPool2d(2)
        coarse_to_fine = list(itertools.pairwise(reversed(channels)))
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(coarse, fine, kernel_size=2, stride=2) for coarse, fine in coarse_to_fine
        )
        self.up = nn.ModuleList(_block(2 * fine, fine) for _, fine in coarse_to_fine)
        self.head = nn.Conv2d(channels[0], options.num_classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """
        :raises ValueError: for images that cannot be halved often enough.
        """
        height, width = x.shape[2:]
        if height % self.divisor or width % self.divisor:
            raise ValueError(
                f"{len(self.down)} levels need height and width in multiples of {self.divisor}, "
                f"and the images have {height}x{width}"
            )
        seen: list[Tensor] = []
        for number, block in enumerate(self.down):
            x = block(self.pool(x) if number else x)
            seen.append(x)
        for grow, block, beside in zip(self.grow, self.up, reversed(seen[:-1]), strict=True):
            x = block(torch.cat([beside, grow(x)], 1))
        return self.head(x)


def _block(before: int, after: int) -> nn.Sequential:
    """Twice a convolution, GroupNorm of up to 8 groups and ReLU."""
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [
            nn.Conv2d(channels, after, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(math.gcd(8, after), after),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)
