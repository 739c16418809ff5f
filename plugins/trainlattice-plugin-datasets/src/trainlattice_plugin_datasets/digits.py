"""The digits of scikit-learn: 1,797 images of 8x8 pixels (UCI optdigits)."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits

from trainlattice.data import Splits, TensorData
from trainlattice_plugin_datasets.options import DigitsOptions
from trainlattice_plugin_datasets.splitting import split


def open_digits(options: DigitsOptions) -> Splits:
    """Float32 images ``[N, 1, 8, 8]`` in [0, 1] and int64 labels ``[N]``, split class by class."""
    data = load_digits()
    images = torch.from_numpy(data.images).to(torch.float32).div(16).unsqueeze(1)
    labels = torch.from_numpy(data.target).to(torch.int64)
    train, val = split(len(labels), options.val_fraction, options.split_seed, labels)
    return Splits(
        TensorData(images[train], labels[train]),
        TensorData(images[val], labels[val]),
        contract=options.contract(),
    )
