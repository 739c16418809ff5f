"""The state of a set of named objects: anything with ``state_dict`` and ``load_state_dict``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Stateful(Protocol):
    """As torch's modules, optimizers and schedulers are."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any: ...


def capture(objects: Mapping[str, Stateful]) -> dict[str, Any]:
    """The state of each object under its name."""
    return {name: held.state_dict() for name, held in objects.items()}


def restore(objects: Mapping[str, Stateful], states: Mapping[str, Any]) -> None:
    """Loads each state into the object of its name.

    :raises KeyError: if an object has no state, or a state has no object.
    """
    absent = [name for name in objects if name not in states]
    foreign = [name for name in states if name not in objects]
    if absent or foreign:
        parts = []
        if absent:
            parts.append(f"it holds no state for {', '.join(absent)}")
        if foreign:
            parts.append(f"it holds state for {', '.join(foreign)}, which this run does not have")
        raise KeyError("; ".join(parts))
    for name, held in objects.items():
        held.load_state_dict(states[name])
