"""Averages of weights: kept beside the models, put in their place, saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

MultiAverage = Callable[[Any, Any, Any], None]
"""As ``torch.optim.swa_utils`` has them: averages, current values, how often they were averaged; in place."""


class _Place(NamedTuple):
    """Where a tensor is held: buffers may be replaced by a forward pass, parameters are those of an optimizer.

    :param names: in the model's state; tied weights have several.
    """

    role: str
    names: tuple[str, ...]
    of: dict[str, Any]
    key: str

    @property
    def is_parameter(self) -> bool:
        return isinstance(self.of[self.key], nn.Parameter)

    @property
    def tensor(self) -> Tensor:
        held: Tensor = self.of[self.key]
        return held.detach()


class _Group(NamedTuple):
    """Averages of one dtype on one device, and what they are of: made once, since torch's functions take a list of
    tensors in a fraction of the time in which Python looks each of them up.

    :param averages: of the parameters, then of the places.
    :param parameters: of this dtype.
    :param places: looked up for each update: buffers, and what is averaged in another dtype than its own.
    """

    averages: list[Tensor]
    parameters: list[Tensor]
    places: list[_Place]


class Averages:
    """Of the parameters of models, and of their floating-point buffers if they are wanted. The first update takes
    the values as they are. Averages of half precision are kept in float32: small updates would be lost.

    :param models: by role.
    """

    def __init__(self, models: Mapping[str, nn.Module], *, buffers: bool) -> None:
        self.places = [place for role, model in models.items() for place in _places(role, model, buffers)]
        self.values: list[Tensor] = []
        self.updates = 0
        self._groups: list[_Group] = []

    @torch.no_grad()
    def update(self, average: MultiAverage) -> None:
        if not self.updates:
            current = [place.tensor for place in self.places]
            self.values = [value.to(_kept_in(value), copy=True) for value in current]
            self._groups = []
        else:
            self._groups = self._groups or self._grouped()
            for averages, parameters, places in self._groups:
                dtype, held = averages[0].dtype, [place.of[place.key] for place in places]
                others = [value if value.dtype == dtype else value.to(dtype) for value in held]
                average(averages, [*parameters, *others], self.updates)
        self.updates += 1

    def _grouped(self) -> list[_Group]:
        found: dict[tuple[torch.dtype, torch.device], list[tuple[Tensor, _Place]]] = {}
        for value, place in zip(self.values, self.places, strict=True):
            found.setdefault((value.dtype, value.device), []).append((value, place))
        groups = []
        for (dtype, _), members in found.items():
            group = _Group([], [], [])
            for value, place in members:
                if place.is_parameter and place.tensor.dtype == dtype:
                    group.averages.append(value)
                    group.parameters.append(place.of[place.key])
            for value, place in members:
                if not (place.is_parameter and place.tensor.dtype == dtype):
                    group.averages.append(value)
                    group.places.append(place)
            groups.append(group)
        return groups

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The averages stand in the models; afterwards, whatever happened, what was there before. Before the first
        update nothing is done."""
        if not self.updates:
            yield
            return
        before = [place.tensor.clone() for place in self.places]
        try:
            self._put(self.values)
            yield
        finally:
            self._put(before)

    def state_dict(self) -> dict[str, Any]:
        """``weights`` is by role and by name in the model's state, tied weights under each of their names."""
        weights: dict[str, dict[str, Tensor]] = {}
        for place, value in zip(self.places, self.values, strict=False):
            weights.setdefault(place.role, {}).update(dict.fromkeys(place.names, value))
        return {"updates": self.updates, "weights": weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :raises ValueError: for averages of another model.
        """
        self.updates, self.values, self._groups = int(state["updates"]), [], []
        for place in self.places if self.updates else ():
            saved = state["weights"].get(place.role, {}).get(place.names[0])
            current = place.tensor
            if saved is None or saved.shape != current.shape:
                raise ValueError(f"there is no average that fits {place.names[0]} of the {place.role}")
            self.values.append(saved.to(current.device, _kept_in(current), copy=True))

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for place, value in zip(self.places, values, strict=True):
            place.tensor.copy_(value)


def _kept_in(value: Tensor) -> torch.dtype:
    return torch.float32 if value.dtype in (torch.float16, torch.bfloat16) else value.dtype


def _places(role: str, model: nn.Module, buffers: bool) -> Iterator[_Place]:
    """Each tensor once."""
    found: dict[int, tuple[list[str], dict[str, Any], str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        held: list[tuple[dict[str, Any], str, Tensor]] = [
            (module._parameters, key, value)
            for key, value in module._parameters.items()
            if value is not None and value.is_floating_point()
        ]
        if buffers:
            held += [
                (module._buffers, key, value)
                for key, value in module._buffers.items()
                if value is not None and value.is_floating_point()
            ]
        for of, key, value in held:
            names, _, _ = found.setdefault(id(value), ([], of, key))
            names.append(f"{path}.{key}" if path else key)
    for names, of, key in found.values():
        yield _Place(role, tuple(names), of, key)
