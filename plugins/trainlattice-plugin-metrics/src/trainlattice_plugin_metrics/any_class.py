"""Any class of torchmetrics, by its name."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from importlib import import_module

import torchmetrics
from torchmetrics import Metric

from trainlattice.contracts.options import OptionError
from trainlattice_plugin_metrics.measured import Measured
from trainlattice_plugin_metrics.options import AnyOptions

DOMAINS = (
    "classification",
    "regression",
    "image",
    "text",
    "audio",
    "nominal",
    "retrieval",
    "segmentation",
    "clustering",
)


def build(options: AnyOptions) -> Measured:
    """The arguments are compared with the constructor's signature first."""
    found = _classes().get(options.class_name)
    if found is None:
        near = get_close_matches(options.class_name, _classes(), 3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise OptionError("class", f"torchmetrics has no class {options.class_name!r}{hint}")
    legal = _arguments(found)
    for name in options.arguments:
        if name not in legal:
            raise OptionError(
                ("arguments", name), f"{options.class_name} takes {', '.join(legal) or 'nothing'}"
            )
    try:
        metric = found(**options.arguments)
    except (TypeError, ValueError) as error:
        raise OptionError("arguments", f"{options.class_name} refuses them: {error}") from None
    return Measured(metric)


def _classes() -> dict[str, type[Metric]]:
    found: dict[str, type[Metric]] = {}
    for module in (torchmetrics, *(_domain(name) for name in DOMAINS)):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Metric) and value is not Metric:
                found.setdefault(name, value)
    return found


def _domain(name: str) -> object:
    try:
        return import_module(f"torchmetrics.{name}")
    except ModuleNotFoundError:  # an older torchmetrics has fewer
        return torchmetrics


def _arguments(found: type[Metric]) -> list[str]:
    """Of the constructor, or of ``__new__`` where that chooses the class (a task)."""
    names: list[str] = []
    for function in (found.__init__, found.__new__):
        for name, parameter in inspect.signature(function).parameters.items():
            variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
            if not variable and name not in ("self", "cls") and name not in names:
                names.append(name)
    return names
