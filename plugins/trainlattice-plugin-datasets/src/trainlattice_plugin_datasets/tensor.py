"""Pairs of tensors in local ``.pt`` files."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import torch
from torch import Tensor

from trainlattice.contracts.options import OptionError, existing_directory, existing_file
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice_plugin_datasets.options import TensorOptions


def open_tensor(options: TensorOptions) -> Splits:
    """Integer labels ``[N]`` make a classification, floating-point labels a regression."""
    root = existing_directory("root", options.root)
    train = _read("train_file", root / options.train_file, options.num_classes)
    val = _read("val_file", root / options.val_file, options.num_classes)
    if train.targets.dtype != val.targets.dtype or train.inputs.shape[1:] != val.inputs.shape[1:]:
        raise OptionError(
            "val_file",
            f"{options.val_file} has features {list(val.inputs.shape[1:])} and labels {val.targets.dtype}, "
            f"{options.train_file} has {list(train.inputs.shape[1:])} and {train.targets.dtype}",
        )
    task = "regression" if train.targets.is_floating_point() else "classification"
    shape = tuple(train.inputs.shape[1:])
    return Splits(train, val, contract=DatasetContract(shape, task, options.num_classes))


def _read(option: str, path: Path, num_classes: int) -> TensorData:
    existing_file(option, path)
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))  # of torch's long advice, the name is what helps
        if found is None:
            raise OptionError(option, f"{path} cannot be read as a file of tensors") from None
        raise OptionError(
            option,
            f"{path} holds {found[1]}, which could run code, and was not loaded; expected tensors alone",
        ) from None
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise OptionError(option, f"{path} cannot be read as a file of tensors: {error}") from None
    if not isinstance(data, dict) or not all(isinstance(data.get(k), Tensor) for k in ("features", "labels")):
        raise OptionError(option, f'{path} must hold {{"features": Tensor, "labels": Tensor}}')
    features, labels = data["features"], data["labels"]
    if not features.dim() or not labels.dim():
        raise OptionError(option, f"{path}: features and labels must have a first dimension, the samples")
    if len(features) != len(labels):
        raise OptionError(option, f"{path} has {len(features)} features and {len(labels)} labels")
    features = features.to(torch.get_default_dtype())
    if labels.is_floating_point():
        _refuse_first(option, path, labels, ~labels.isfinite(), "is not finite")
        return TensorData(features, labels.to(torch.get_default_dtype()))
    labels = labels.to(torch.int64)
    outside = (labels < 0) | (labels >= num_classes)
    _refuse_first(
        option, path, labels, outside, f"is outside 0..{num_classes - 1} (num_classes is {num_classes})"
    )
    return TensorData(features, labels)


def _refuse_first(option: str, path: Path, labels: Tensor, wrong: Tensor, what: str) -> None:
    """Raises OptionError with the row and value of the first label that is wrong."""
    places = wrong.nonzero()
    if len(places):
        place = tuple(places[0].tolist())
        raise OptionError(option, f"{path}: label {labels[place].item()} in row {place[0]} {what}")
