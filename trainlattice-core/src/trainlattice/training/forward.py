"""A model's call: its arguments from the container, what it returns back into it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor, nn

from trainlattice.data.container import Container, get


class Forward:
    """Calls a model and leaves ``pred`` in the container.

    What is no tensor is spread too: the values of a mapping and the fields of a dataclass or named tuple as
    ``pred/<name>``, those of a tuple or list as ``pred/0``, ``pred/1``, ... What a model offers to losses beside
    its output, in a mapping ``loss_args`` that it has from the beginning, becomes ``model/<name>``.

    :param inputs: key of the container by argument of ``forward``; None gives it the batch's ``input``.
    """

    def __init__(self, model: nn.Module, inputs: Mapping[str, str] | None = None) -> None:
        self.model = model
        self.inputs = dict(inputs) if inputs else None
        self._offers = hasattr(model, "loss_args")

    def __call__(self, container: Container) -> Any:
        if self.inputs is None:
            output = self.model(get(container, "input", "the model"))
        else:
            arguments = {name: get(container, key, "the model") for name, key in self.inputs.items()}
            output = self.model(**arguments)
        container["pred"] = output
        if not isinstance(output, Tensor):
            for name, value in _spread(output):
                container[f"pred/{name}"] = value
        if self._offers:
            for name, value in self.model.loss_args.items():  # type: ignore[union-attr,operator]
                container[f"model/{name}"] = value
        return output


def _spread(output: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(output, Mapping):
        return ((str(name), value) for name, value in output.items())
    if is_dataclass(output):
        return ((field.name, getattr(output, field.name)) for field in fields(output))
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return zip(output._fields, output, strict=True)
    if isinstance(output, (tuple, list)):
        return ((str(number), value) for number, value in enumerate(output))
    return iter(())
