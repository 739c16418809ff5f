"""A look at a dataset that leaves the dataset as it was."""

from __future__ import annotations

import io
import pickle
import types
from typing import Any, TypeVar

from torch import Tensor

T = TypeVar("T")

MOST_ITEMS = 10_000
"""Containers with more are shared with the copy."""


def spare(dataset: T) -> T:
    """A copy to take samples from; tensors, arrays, large containers, functions and classes are shared with it.

    A dataset may open its file at the first sample, so that each loader process has a file of its own. If this
    process took a sample first, processes that are forked from it would share the open file and its position, and
    read one another's bytes. What cannot be copied is returned itself.
    """
    shared: list[Any] = []
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, shared).dump(dataset)
        buffer.seek(0)
        copy: T = _Unpickler(buffer, shared).load()
        return copy
    except (
        Exception
    ):  # an open file, a lock, a __getstate__ that raises: a component's objects may do anything
        return dataset


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.shared = shared

    def persistent_id(self, value: Any) -> int | None:
        if not _is_shared(value):
            return None
        self.shared.append(value)
        return len(self.shared) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self.shared = shared

    def persistent_load(self, number: Any) -> Any:
        return self.shared[number]


def _is_shared(value: Any) -> bool:
    if isinstance(value, (Tensor, type, types.FunctionType, types.ModuleType)):
        return True
    if hasattr(type(value), "__array_interface__"):  # NumPy's arrays, a memory-mapped one too
        return True
    return isinstance(value, (list, tuple, dict, set, bytes)) and len(value) > MOST_ITEMS
