"""The data container: one plain dict that carries a batch through model, loss, metrics and callbacks.

Keys: ``input`` or ``input/<key>`` (what the batch holds), ``target`` or ``target/<key>``, ``epoch`` (complete
epochs), ``weight`` (how much the batch counts in means), then what is computed: ``pred``, ``pred/<key>``, ``loss``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, Sequence, Sized
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from trainlattice.diagnostics.errors import TrainLatticeError

Container = dict[str, Any]


_FORMS = "a batch is a pair (input, target), a dict, a dataclass or a type with to(device), and this dataset yields"


class BatchError(TrainLatticeError):
    """A batch of a form that no container can be made from."""


def container_of(batch: Any) -> Container:
    """The container of a batch, where it is: ``(input, target)``, a dict of fields, a dataclass, or a named tuple
    of other than two fields. A tensor, and any other type with a method ``to(device)``, is the ``input`` as a
    whole, and its attribute ``target`` or ``y``, if it has one, the target.

    :raises BatchError: for anything else.
    """
    if isinstance(batch, Mapping):
        return {_key(str(key)): value for key, value in batch.items()}
    if isinstance(batch, Sequence) and len(batch) == 2:
        return {"input": batch[0], "target": batch[1]}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return {_key(name): value for name, value in zip(batch._fields, batch, strict=True)}
    if hasattr(batch, "to"):
        target = None if isinstance(batch, Tensor) else getattr(batch, "target", getattr(batch, "y", None))
        return {"input": batch} if target is None else {"input": batch, "target": target}
    if is_dataclass(batch):
        return {_key(field.name): getattr(batch, field.name) for field in fields(batch)}
    form = f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, Sequence) else "")
    raise BatchError(f"{_FORMS} {form}")


def move(container: Container, device: torch.device, dtype: torch.dtype | None = None) -> None:
    """Brings the values of a container to the device, in place.

    :param dtype: the model's: float64 values, which NumPy makes of everything, become values of this type.
    """
    for key, value in container.items():
        container[key] = _to(value, device, dtype)


def batch_size(container: Container) -> int:
    """Number of samples: the length of ``target``, else of ``input``, else of the first tensor with a
    dimension, else that of an input of its own type.

    :raises BatchError: if there is none.
    """
    for value in (container.get("target"), container.get("input"), *container.values()):
        if isinstance(value, Tensor) and value.dim() > 0:
            return len(value)
    whole = container.get("input")
    if isinstance(whole, Sized) and hasattr(whole, "to") and not isinstance(whole, Tensor):
        return len(whole)
    raise BatchError(f"no tensor with a batch dimension among the keys {', '.join(container) or '(none)'}")


def get(container: Container, key: str, asked_by: str) -> Any:
    """The value of a key. Raises KeyError with the key, who asked for it and the keys that exist."""
    try:
        return container[key]
    except KeyError:
        raise KeyError(
            f"{asked_by} needs the key {key!r}; the batch has {', '.join(map(repr, container))}"
        ) from None


def _key(name: str) -> str:
    if name in ("input", "target") or name.startswith(("input/", "target/")):
        return name
    return f"input/{name}"


def _to(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if isinstance(value, Tensor):
        narrows = value.dtype == torch.float64 and dtype is not None
        return value.to(device, dtype if narrows else value.dtype, non_blocking=True)
    if hasattr(value, "to"):
        return value.to(device)
    if isinstance(value, (Mapping, list, tuple)) or (is_dataclass(value) and not isinstance(value, type)):
        return _rebuilt(value, lambda item: _to(item, device, dtype))  # such as the boxes of each image
    return value


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a mapping, list, tuple, named tuple or dataclass with each item changed."""
    if is_dataclass(value):
        made = object.__new__(type(value))  # its __init__ may do more than take the fields
        for field in fields(value):
            object.__setattr__(made, field.name, change(getattr(value, field.name)))
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change, value))
    if isinstance(value, MutableMapping):
        other: MutableMapping[Any, Any] = copy.copy(value)  # it may be more than its items
        other.update({key: change(item) for key, item in value.items()})
        return other
    if isinstance(value, Mapping):
        return {key: change(item) for key, item in value.items()}
    return type(value)(map(change, value))
