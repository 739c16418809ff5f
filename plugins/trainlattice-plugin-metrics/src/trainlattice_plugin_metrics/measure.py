"""What turns a metric of torchmetrics into one of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

Prepare = Callable[[str, Any, bool], Any]
"""Of the name of an input, its value and whether it is the first: what the metric gets."""

_TRANSIENT = frozenset(
    {"training", "validate_args", "_is_synced", "_to_sync", "_should_unsync", "_dtype_convert"}
)
"""Plain attributes of a torchmetrics metric that are no part of what it has taken in."""


class Measure(nn.Module):
    """A metric of torchmetrics with whole state dicts, without warnings where nothing was seen, and without
    waiting for the device.

    Torchmetrics' own checks of values wait for the device, so the first batch alone is checked: core tries each
    metric with two samples before the run.

    :param prepare: applied to each input.
    :param at_least: samples without which there is no value, by a state of the metric that counts them.
    """

    def __init__(
        self, metric: Metric, prepare: Prepare | None = None, at_least: tuple[str, int] | None = None
    ) -> None:
        super().__init__()
        self.metric = metric
        self.prepare = prepare
        self.at_least = at_least
        self.checked = False
        self.updates = 0  # a metric that holds others may not count its own
        self._built = {path: dict(_plain_attributes(part)) for path, part in self._parts()}

    @property
    def higher_is_better(self) -> bool | None:
        better: bool | None = self.metric.higher_is_better
        return better

    def update(self, **inputs: Any) -> None:
        """
        :raises TypeError: for inputs that the metric does not have.
        """
        first = not self.checked
        if first:
            _require_inputs(self.metric, inputs)
        self.metric.update(**{name: self._prepared(name, value, first) for name, value in inputs.items()})
        self.updates += 1
        if first:
            self.checked = True
            for _, part in self._parts():
                if getattr(part, "validate_args", None) is True:
                    part.validate_args = False  # type: ignore[assignment]  # a bool, where a module may stand

    def compute(self) -> Any:
        """NaN if nothing was seen; tensors of no dimension as numbers, others and tuples as nested lists."""
        if not self.updates or self._too_few():
            return float("nan")
        value = self.metric.compute()
        if isinstance(value, Mapping):
            return {str(key): _plain(one) for key, one in value.items()}
        return _plain(value)

    def reset(self) -> None:
        self.updates = 0
        self.metric.reset()

    def state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """By part (a metric may hold others): its states, counts, and what else has changed since it was built."""
        held: dict[str, Any] = {}
        for path, part in self._parts():
            states = {name: _copied(getattr(part, name)) for name in part._defaults}
            built = self._built[path]
            changed = {
                n: _copied(v) for n, v in _plain_attributes(part) if n not in built or built[n] is not v
            }
            held[path] = {**states, **changed}
        return {"updates": self.updates, "parts": held}

    def load_state_dict(self, state: Mapping[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """
        :raises ValueError: for a state of other parts, names or shapes.
        """
        parts, held = dict(self._parts()), state["parts"]
        if set(held) != set(parts):
            raise ValueError(f"it holds the parts {sorted(held)}, and this metric has {sorted(parts)}")
        for path, part in parts.items():
            missing = [name for name in part._defaults if name not in held[path]]
            if missing:
                raise ValueError(f"it lacks {', '.join(missing)}")
            for name, default in part._defaults.items():
                _require_form(name, held[path][name], default)
        for path, part in parts.items():
            part.reset()
            for name, value in held[path].items():
                setattr(part, name, _copied(value, part.device))
        self.updates = state["updates"]

    def _parts(self) -> Iterator[tuple[str, Metric]]:
        for path, module in self.metric.named_modules():
            if isinstance(module, Metric):
                yield path, module

    def _prepared(self, name: str, value: Any, first: bool) -> Any:
        if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
            value = value.float()  # sums of 8 or 11 bits would be worthless
        return self.prepare(name, value, first) if self.prepare else value

    def _too_few(self) -> bool:
        if self.at_least is None:
            return False
        name, least = self.at_least
        return bool(getattr(self.metric, name) < least)


def _require_inputs(metric: Metric, inputs: Mapping[str, Any]) -> None:
    """Names the inputs that there are; Python's own text speaks of positional arguments."""
    signature: inspect.Signature = metric._update_signature
    try:
        signature.bind(**inputs)
    except TypeError:
        needed = [
            p.name if p.default is p.empty else f"{p.name} (may be left out)"
            for p in signature.parameters.values()
            if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        raise TypeError(f"its inputs are {', '.join(needed)}; here are {', '.join(inputs)}") from None


def _plain_attributes(metric: Metric) -> Iterator[tuple[str, Any]]:
    """Attributes that are no states and hold numbers, texts or tensors."""
    for name, value in vars(metric).items():
        if name in metric._defaults or name in _TRANSIENT:
            continue
        if name == "_computed":  # what is computed once more from the states
            continue
        if value is None or isinstance(value, (bool, int, float, str, Tensor)):
            yield name, value


def _copied(value: Any, device: torch.device | None = None) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device or value.device, copy=True)
    if isinstance(value, (list, tuple)):
        return type(value)(_copied(item, device) for item in value)
    return value


def _require_form(name: str, value: Any, default: Any) -> None:
    if isinstance(default, Tensor) != isinstance(value, Tensor):
        raise ValueError(f"{name} is a {type(value).__name__}, and here a {type(default).__name__}")
    # A state of one number may have become one of several with the first batch.
    if isinstance(default, Tensor) and default.dim() and value.shape != default.shape:
        raise ValueError(f"{name} has the shape {list(value.shape)}, and here {list(default.shape)}")


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, int, float)):
        return value
    raise TypeError(f"its value is a {type(value).__name__}, which is no number, tensor or mapping of such")
