"""Circles, squares and triangles in noise, with the class of each pixel: segmentation without a file."""

from __future__ import annotations

import numpy
import torch
from torch import Tensor

from trainlattice.data import Splits
from trainlattice_plugin_datasets.options import ShapesOptions

BACKGROUND, CIRCLE, SQUARE, TRIANGLE = range(4)


def open_shapes(options: ShapesOptions, seed: int) -> Splits:
    """Float32 images ``[C, H, W]`` and int64 classes ``[H, W]``: 0 the ground, 1 circle, 2 square, 3 triangle."""
    return Splits(
        Shapes(options, seed, 0, options.samples),
        Shapes(options, seed, 1, options.val_samples),
        contract=options.contract(),
    )


class Shapes:
    """Images that are drawn when they are asked for, each by its own generator of (seed, split, index): the same in
    every epoch and loader process, and whatever the number of samples. A batch is drawn at once.

    :param split: 0 for training, 1 for validation.
    """

    stochastic = False

    def __init__(self, options: ShapesOptions, seed: int, split: int, samples: int) -> None:
        self.options, self.seed, self.split, self.samples = options, seed, split, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.samples:
            raise IndexError(f"image {index} of {self.samples}")
        images, masks = self.fetch_batch(torch.tensor([index]))
        return images[0], masks[0]

    def fetch_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """``[B, C, H, W]`` and ``[B, H, W]`` for int64 indices ``[B]``."""
        height, width = self.options.image_size
        numbers, noise = self._drawn(indices.tolist())
        # [B, S, 1, 1], S the shapes of an image
        present, kind, y, x, radius = (numbers[..., column, None, None] for column in range(5))
        smallest, largest = (share * min(height, width) for share in self.options.radius)
        radius = smallest + radius * (largest - smallest)
        down = torch.arange(height, dtype=torch.float32).add(0.5).unsqueeze(1) - y * height  # [B, S, H, 1]
        right = torch.arange(width, dtype=torch.float32).add(0.5) - x * width  # [B, S, 1, W]
        circle = down.square() + right.square() <= radius.square()
        square = torch.maximum(down.abs(), right.abs()) <= 0.85 * radius
        triangle = (down <= radius) & (2.0 * right.abs() <= radius + down)
        kind = (kind * 3).long()  # [B, S, 1, 1], from 0
        covered = torch.where(kind == 0, circle, torch.where(kind == 1, square, triangle)) & (present > 0)
        colour = 0.5 + 0.5 * numbers[..., 5:, None, None]  # [B, S, C, 1, 1]
        images, masks = torch.zeros_like(noise), torch.full_like(covered[:, 0], BACKGROUND, dtype=torch.int64)
        for shape in range(covered.shape[1]):
            here = covered[:, shape]
            images = torch.where(here.unsqueeze(1), colour[:, shape], images)
            masks = torch.where(here, CIRCLE + kind[:, shape], masks)
        return images + noise, masks

    def _drawn(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        """Of each shape whether it is there (0 or 1) and, in [0, 1), its kind, centre, radius and colour,
        ``[B, S, 5 + C]``; the noise of each pixel, ``[B, C, H, W]``."""
        most, channels = self.options.max_shapes, self.options.channels
        numbers = numpy.empty((len(indices), most, 5 + channels), numpy.float32)
        noise = numpy.empty((len(indices), channels, *self.options.image_size), numpy.float32)
        for row, index in enumerate(indices):
            # Philox is counter-based: other keys, other streams (Salmon et al. 2011, doi:10.1145/2063384.2063405).
            generator = numpy.random.Generator(numpy.random.Philox(key=[self.seed, 2 * index + self.split]))
            count = generator.integers(1, most, endpoint=True)
            generator.random(dtype=numpy.float32, out=numbers[row])
            numbers[row, :, 0] = numpy.arange(most) < count
            generator.standard_normal(dtype=numpy.float32, out=noise[row])
        return torch.from_numpy(numbers), torch.from_numpy(noise).mul_(self.options.noise)
