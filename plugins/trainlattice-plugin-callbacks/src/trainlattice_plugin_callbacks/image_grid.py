"""A picture of predictions after each validation."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trainlattice.data.container import Container, get
from trainlattice.training.callbacks import Callback, PhaseName
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.files import run_directory
from trainlattice_plugin_callbacks.options import ImageGridOptions
from trainlattice_plugin_callbacks.png import png

GAP = 2
"""Pixels between two images, black."""


class ImageGrid(Callback):
    """``images/<key>_epoch0003_step00001200.png`` of the first batch of each validation."""

    batch_phases = ("val",)

    def __init__(self, options: ImageGridOptions) -> None:
        self.options = options
        self.is_first = False

    def on_phase_start(self, trainer: Trainer, phase: PhaseName) -> None:
        self.is_first = phase == "val"

    def on_batch_end(self, trainer: Trainer, phase: PhaseName, container: Container) -> None:
        if not self.is_first:
            return
        self.is_first = False
        key = self.options.key
        images = _images(get(container, key, "the callback image_grid"), key, self.options.count)
        pixels = grid(gray_values(images, self.options.value_range), self.options.columns)
        height, width, channels = pixels.shape
        place = f"epoch{trainer.epoch_number:04d}_step{trainer.state.global_step:08d}"
        path = run_directory(trainer, "images") / f"{key.replace('/', '-')}_{place}.png"
        path.write_bytes(png(bytes(pixels.flatten().tolist()), width, height, channels))


def grid(images: Tensor, columns: int | None) -> Tensor:
    """Row by row, ``[H, W, C]`` uint8.

    :param images: ``[N, C, H, W]`` uint8.
    """
    count, channels, height, width = images.shape
    across = min(columns or math.ceil(math.sqrt(count)), count)
    down = math.ceil(count / across)
    size = (down * (height + GAP) - GAP, across * (width + GAP) - GAP, channels)
    canvas = torch.zeros(size, dtype=torch.uint8)
    for number, image in enumerate(images):
        top, left = number // across * (height + GAP), number % across * (width + GAP)
        canvas[top : top + height, left : left + width] = image.permute(1, 2, 0)
    return canvas


def _images(value: Any, key: str, count: int) -> Tensor:
    """``[N, C, H, W]`` on the host, in float64."""
    if isinstance(value, Tensor) and value.dim() == 3:
        value = value.unsqueeze(1)
    if not isinstance(value, Tensor) or value.dim() != 4 or value.shape[1] not in (1, 3) or not value.numel():
        form = (
            f"has the shape {list(value.shape)}"
            if isinstance(value, Tensor)
            else f"is a {type(value).__name__}"
        )
        raise ValueError(
            f"{key} {form}, and image_grid shows [N, C, H, W] with one or three channels, or [N, H, W]"
        )
    return value[:count].detach().to("cpu", torch.float64)


def gray_values(images: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    """0 to 255; an image of one value is black.

    What is not finite is 0, and has no part in the smallest and largest value of its image.
    """
    finite = images.isfinite()
    if value_range is None:
        low = torch.where(finite, images, torch.inf).amin(dim=(1, 2, 3), keepdim=True)
        span = torch.where(finite, images, -torch.inf).amax(dim=(1, 2, 3), keepdim=True) - low
        span = torch.where(span > 0, span, 1.0)
    else:
        low, span = torch.tensor(value_range[0]), torch.tensor(value_range[1] - value_range[0])
    scaled = torch.where(finite, (images - low) / span, 0.0)
    return scaled.clamp(0, 1).mul(255).round().to(torch.uint8)
