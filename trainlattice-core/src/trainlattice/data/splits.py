"""What a dataset component returns: the training, validation and test data, and what they promise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainlattice.contracts.records import DatasetContract


@runtime_checkable
class MapDataset(Sized, Protocol):
    """Data with a length and a sample at each index; any ``torch.utils.data.Dataset`` with both is one.

    A sample is ``(input, target)``, a dict or a dataclass; with ``collate_fn(samples)``, which makes the batch, it
    may be anything. A dataset may also have ``fetch_batch(indices)``, which takes
    an int64 tensor ``[B]`` and returns a whole batch: it is then used instead of fetching and collating
    samples one by one. An attribute ``stochastic`` says whether it draws random numbers (augmentation); without
    it that is found out.
    """

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class Splits:
    """The data of a run.

    Each is map-style, or iterable: then it yields samples, and may have ``__len__`` and ``set_epoch(epoch)``.

    :param train: what is trained on.
    :param val: what is validated on, or None for a run without validation.
    :param test: what ``evaluate --split test`` uses.
    :param contract: what is known about the samples now that the data is open.
    """

    train: MapDataset | Iterable[Any]
    val: MapDataset | Iterable[Any] | None = None
    test: MapDataset | Iterable[Any] | None = None
    contract: DatasetContract = field(default_factory=DatasetContract)


class TensorData:
    """Inputs and targets in memory; a batch is one ``index_select`` of each.

    :param inputs: ``[N, ...]``.
    :param targets: ``[N]`` or ``[N, ...]``.
    :raises ValueError: if the lengths differ.
    """

    stochastic = False

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        if len(inputs) != len(targets):
            raise ValueError(f"{len(inputs)} inputs and {len(targets)} targets: the lengths must be equal")
        self.inputs = inputs
        self.targets = targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]

    def fetch_batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """``([B, ...], [B, ...])`` for int64 indices ``[B]``."""
        return torch.index_select(self.inputs, 0, indices), torch.index_select(self.targets, 0, indices)


class TensorFields:
    """Several inputs or targets in memory: a batch is a dict with one ``index_select`` of each.

    :param fields: ``[N, ...]`` by key, such as ``left`` (an input), ``target`` or ``target/value``.
    :raises ValueError: if there are none or their lengths differ.
    """

    stochastic = False

    def __init__(self, fields: Mapping[str, Tensor]) -> None:
        lengths = {key: len(values) for key, values in fields.items()}
        if len(set(lengths.values())) != 1:
            found = ", ".join(f"{length} of {key!r}" for key, length in lengths.items()) or "no fields"
            raise ValueError(f"the lengths must be equal: {found}")
        self.fields = dict(fields)

    def __len__(self) -> int:
        return len(next(iter(self.fields.values())))

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {key: values[index] for key, values in self.fields.items()}

    def fetch_batch(self, indices: Tensor) -> dict[str, Tensor]:
        """``[B, ...]`` by key for int64 indices ``[B]``."""
        return {key: torch.index_select(values, 0, indices) for key, values in self.fields.items()}
