"""Synthetic classification: each class is a random prototype, each sample its prototype plus noise."""

from __future__ import annotations

import torch

from trainlattice.data import Splits, TensorData
from trainlattice_plugin_datasets.options import SyntheticOptions


def open_synthetic(options: SyntheticOptions, seed: int) -> Splits:
    """Float32 inputs ``[N, *input_shape]`` and int64 labels ``[N]``; the same seed gives the same data."""
    generator = torch.Generator().manual_seed(seed)
    prototypes = torch.randn(options.num_classes, *options.input_shape, generator=generator)

    def draw(count: int) -> TensorData:
        labels = torch.randint(options.num_classes, (count,), generator=generator)
        noise = torch.randn(count, *options.input_shape, generator=generator)
        return TensorData(prototypes[labels] + noise, labels)

    return Splits(draw(options.samples), draw(options.val_samples), contract=options.contract())
