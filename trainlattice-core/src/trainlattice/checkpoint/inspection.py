"""What is in a checkpoint file: read through a memory map, so that no tensor is loaded.

Its bytes are not verified: that costs reading them all.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainlattice.checkpoint.format import Checkpoint
from trainlattice.diagnostics.errors import CheckpointError


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a checkpoint.

    :param path: keys from ``states`` on, joined by slashes.
    :param bytes: of its elements; several tensors may share them in the file.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Inspection:
    """What a checkpoint says of itself, and its tensors.

    :param tensor_bytes: of all tensors; what several share counts once.
    """

    path: Path
    size: int
    format: int
    content: Checkpoint
    tensors: list[TensorEntry]
    tensor_bytes: int

    @property
    def implementations(self) -> dict[str, str]:
        """Of its optimizers by role: which of torch's kernels made the updates."""
        return {
            name.removeprefix("update/"): state["implementation"]
            for name, state in self.content.states.items()
            if name.startswith("update/") and isinstance(state, dict) and state.get("implementation")
        }

    def as_json(self) -> dict[str, Any]:
        trainer = self.content.trainer
        return {
            "path": str(self.path),
            "size": self.size,
            "verified": False,
            "format": self.format,
            "kind": self.content.kind,
            "epoch": trainer["epoch"],
            "global_step": trainer["global_step"],
            **{key: trainer.get(key) for key in ("best_metric", "best_epoch", "best_step", "stop_reason")},
            "order": self.content.order,
            "budget": self.content.budget,
            "implementations": self.implementations,
            "components": self.content.components,
            "tensors": [asdict(tensor) for tensor in self.tensors],
            "totals": {"tensors": len(self.tensors), "bytes": self.tensor_bytes},
        }


def inspect(path: Path) -> Inspection:
    """Reads everything but the tensors of a checkpoint; nothing in it is executed.

    :raises CheckpointError: if it is none, is of another format, or holds more than tensors and plain data.
    """
    data = _mapped(path)
    content = Checkpoint.from_plain(data, str(path))
    tensors, storages = [], {}
    for name, tensor in _tensors(content.states, ""):
        count = tensor.numel() * tensor.element_size()
        tensors.append(
            TensorEntry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), count)
        )
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr() if storage.nbytes() else name] = storage.nbytes()
    return Inspection(path, path.stat().st_size, data["format"], content, tensors, sum(storages.values()))


def _mapped(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if not zipfile.is_zipfile(path):
            what = (
                "it is empty"
                if size == 0
                else f"its {size} bytes are no whole zip archive, as torch writes them"
            )
            raise CheckpointError(f"{path} is no checkpoint file: {what}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice for archives of another kind
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))  # of torch's long advice, the name is what helps
        raise CheckpointError(
            f"{path} holds more than tensors and plain data and was not read, since that could run code: "
            f"{found[1] if found else _first_line(error)}"
        ) from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{path}/{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{path}/{index}")
