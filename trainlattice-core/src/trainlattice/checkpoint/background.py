"""One piece of work at a time on one thread, and a copy of a state that it can work on."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Background(Generic[T]):
    """Work that goes on while the caller does something else; what it raises is raised where it is taken."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._result: list[T] = []
        self._error: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        """Whether there is work whose result nobody has taken."""
        return self._thread is not None

    @property
    def is_done(self) -> bool:
        """Whether the result is there to be taken."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self, work: Callable[[], T]) -> None:
        """Begins; the result of earlier work must have been taken."""
        if self._thread is not None:
            raise RuntimeError("the result of the work before is still to be taken")
        self._result, self._error = [], None

        def run() -> None:
            try:
                self._result.append(work())
            except BaseException as error:  # it belongs to whoever takes the result
                self._error = error

        self._thread = threading.Thread(target=run, name="trainlattice-save")
        self._thread.start()

    def take(self) -> T:
        """Waits for the work; its result, or what it raised."""
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        return self._result[0]


def host_copy(state: Any) -> Any:
    """A copy of nested containers whose tensors are on the host and shared with nobody. Tensors that share memory
    (tied weights) share it in the copy too."""
    return _copied(state, {})


def _copied(state: Any, storages: dict[int, Any]) -> Any:
    if isinstance(state, Tensor):
        return _copied_tensor(state, storages)
    if isinstance(state, dict):
        copied = type(state)()
        for key, value in state.items():
            copied[key] = _copied(value, storages)
        vars_of = getattr(state, "__dict__", None)
        if vars_of:  # the versions of modules, which a state_dict carries
            copied.__dict__.update(_copied(dict(vars_of), storages))
        return copied
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(_copied(value, storages) for value in state))
    if isinstance(state, (list, tuple)):
        return type(state)([_copied(value, storages) for value in state])
    return copy.deepcopy(state)  # sets, bytearrays: what the run may change meanwhile


def _copied_tensor(tensor: Tensor, storages: dict[int, Any]) -> Tensor:
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        return (
            tensor.resolve_conj().resolve_neg().to("cpu", copy=True)
        )  # lazy: the storage holds other values
    if tensor.layout != torch.strided or tensor.is_quantized:
        return tensor.to("cpu", copy=True)
    storage = tensor.untyped_storage()
    key = storage.data_ptr()
    if not key or storage.nbytes() > 2 * tensor.nbytes:  # a view of something large: only what is seen
        return tensor.to("cpu", copy=True)
    if key not in storages:
        storages[key] = storage.clone() if storage.device.type == "cpu" else storage.cpu()  # type: ignore[no-untyped-call]
    held = torch.empty(0, dtype=tensor.dtype)
    held.set_(storages[key], tensor.storage_offset(), tensor.size(), tensor.stride())
    return held
