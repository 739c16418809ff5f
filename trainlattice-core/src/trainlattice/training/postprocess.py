"""What stands between the model and losses, metrics and callbacks: functions of keys that write further keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from trainlattice.data.container import Container, get


@dataclass(frozen=True)
class PostProcessor:
    """One of them. It writes ``post_processed/<key>``.

    :param function: is called with the inputs by name.
    :param inputs: key of the container by argument.
    :param output: the key of what it returns; None if it returns a mapping that is spread.
    :param outputs: of a mapping that it returns, the key for each of its own names; None spreads it as it is.
    :param phases: in which it works.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, str]
    output: str | None
    outputs: Mapping[str, str] | None = None
    phases: tuple[str, ...] = ("train", "val", "test")
    path: tuple[str | int, ...] = ("postprocess",)

    def __call__(self, container: Container) -> None:
        asks = f"the post-processor {self.name!r}"
        result = self.function(**{name: get(container, key, asks) for name, key in self.inputs.items()})
        if self.output is not None:
            container[f"post_processed/{self.output}"] = result
            return
        if not isinstance(result, Mapping):
            raise TypeError(
                f"{asks} returned a {type(result).__name__}, and outputs and unfurl spread a mapping"
            )
        names = self.outputs if self.outputs is not None else {name: name for name in result}
        for name, key in names.items():
            if name not in result:
                raise KeyError(f"{asks} returned no {name!r}; it returned {', '.join(map(repr, result))}")
            container[f"post_processed/{key}"] = result[name]


@dataclass(frozen=True)
class PostProcessing:
    """All of them, in the order of the configuration: a later one may read what an earlier one wrote."""

    processors: tuple[PostProcessor, ...] = ()
    _by_phase: dict[str, tuple[PostProcessor, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_phase = {
            phase: tuple(processor for processor in self.processors if phase in processor.phases)
            for phase in ("train", "val", "test")
        }
        object.__setattr__(self, "_by_phase", by_phase)

    def __call__(self, container: Container) -> None:
        """Those of the container's phase; a batch without one is a trial, and goes through all."""
        for processor in self._by_phase.get(container.get("phase", ""), self.processors):
            processor(container)

    def stateful(self) -> dict[str, Any]:
        """Those that have a state, by its name."""
        return {
            f"postprocess/{processor.name}": processor.function
            for processor in self.processors
            if hasattr(processor.function, "state_dict")
        }

    def modules(self) -> Iterable[nn.Module]:
        return [p.function for p in self.processors if isinstance(p.function, nn.Module)]
