"""Metrics that a configuration names: each reads the keys that it needs, one object for each phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from trainlattice.data.container import Container, get
from trainlattice.diagnostics.errors import CheckpointError, TrainLatticeError


@runtime_checkable
class Metric(Protocol):
    """What a component of kind ``metric`` builds. Torchmetrics' metrics are such.

    Of its attributes ``higher_is_better`` (True, False or None) says which value ``trainer.monitor`` prefers.
    """

    def update(self, **inputs: Any) -> None:
        """Takes a batch in. Must not wait for the device."""
        ...

    def compute(self) -> Any:
        """The value over all batches since the last reset: a scalar or a tensor, or a mapping of such by name."""
        ...

    def reset(self) -> None:
        """Forgets every batch."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that it has taken in, as tensors and plain containers."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class NamedMetric:
    """A metric under the name of its values, and the key of the container for each argument of its ``update``."""

    name: str
    metric: Metric
    inputs: Mapping[str, str]


class PhaseMetrics:
    """The metrics of one phase."""

    def __init__(self, metrics: Iterable[NamedMetric] = ()) -> None:
        self.metrics = tuple(metrics)

    def __bool__(self) -> bool:
        return bool(self.metrics)

    def update(self, container: Container) -> None:
        """Takes a batch in that went through the mode.

        :raises KeyError: for a key that the container does not have.
        """
        with torch.no_grad():
            for named in self.metrics:
                asks = f"the metric {named.name!r}"
                inputs = {name: _detached(get(container, key, asks)) for name, key in named.inputs.items()}
                named.metric.update(**inputs)

    def compute(self) -> dict[str, Any]:
        """By name: numbers, and nested lists of them for what is no scalar."""
        found: dict[str, Any] = {}
        for named in self.metrics:
            value = named.metric.compute()
            values = value.items() if isinstance(value, Mapping) else [("", value)]
            for key, one in values:
                name = f"{named.name}_{key}" if key else named.name
                if name in found:
                    raise TrainLatticeError(f"two metrics give a value {name!r}: one needs another name (as)")
                found[name] = one.tolist() if isinstance(one, Tensor) else one
        return found

    def reset(self) -> None:
        for named in self.metrics:
            named.metric.reset()

    def state_dict(self) -> dict[str, Any]:
        return {named.name: named.metric.state_dict() for named in self.metrics}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Metrics may come and go between runs: one that has no state begins with the next batch.

        :raises CheckpointError: for a state that is not of this metric.
        """
        for named in self.metrics:
            if named.name not in state:
                continue
            try:
                named.metric.load_state_dict(state[named.name])
            # What a state of another form raises depends on the metric.
            except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
                text = error.args[0] if isinstance(error, KeyError) and error.args else error
                raise CheckpointError(
                    f"the state of the metric {named.name!r} does not fit this run: {text}"
                ) from error


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value
