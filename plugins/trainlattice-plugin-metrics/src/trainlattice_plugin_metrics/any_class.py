"""Any class of torchmetrics, by its name and the options of its constructor."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torchmetrics
from torchmetrics import Metric

from trainlattice.contracts.options import OptionError
from trainlattice.contracts.records import DatasetContract
from trainlattice.diagnostics.hints import closest, did_you_mean
from trainlattice_plugin_metrics.measure import Measure
from trainlattice_plugin_metrics.options import AnyClassOptions

_PACKAGES = (
    "classification",
    "regression",
    "image",
    "text",
    "retrieval",
    "nominal",
    "clustering",
    "segmentation",
    "shape",
    "aggregation",
    "audio",
    "detection",
    "multimodal",
    "video",
)


def build(options: AnyClassOptions, data: DatasetContract) -> Measure:
    """
    :raises OptionError: for a class that there is none of, and options that it does not take.
    """
    name = options.class_name
    found = _class(name)
    given = dict(options.model_extra or {})
    legal = _options_of(found)
    for option in given:
        if option not in legal:
            hint = did_you_mean(option, legal)
            raise OptionError(
                option,
                f"torchmetrics' {name} has no option {option!r}{f'; {hint}' if hint else ''}; "
                f"options: {', '.join(sorted(legal)) or 'none'}",
            )
    arguments = {option: _argument(legal[option], value) for option, value in given.items()}
    if "num_classes" in legal and "num_classes" not in given and given.get("task") in (None, "multiclass"):
        if data.task == "classification" and data.num_outputs is not None:
            arguments["num_classes"] = data.num_outputs
    for option, parameter in legal.items():
        if parameter.default is parameter.empty and option not in arguments:
            raise OptionError("class", f"torchmetrics' {name} needs the option {option!r}")
    try:
        return Measure(found(**arguments))
    except Exception as error:  # its own checks raise many things
        text = " ".join(str(error).split())
        # They name an option in backticks, and not always as the signature does.
        named = [closest(word, given) for word in re.findall(r"`(\w+)`", text)]
        place = next((option for option in named if option), "class")
        raise OptionError(place, f"torchmetrics' {name} refuses its options: {text}") from error


def _class(name: str) -> type[Metric]:
    names: set[str] = set()
    for module in _modules():
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, Metric) and found is not Metric:
            return found
        names.update(n for n in getattr(module, "__all__", ()) if n[:1].isupper())
    hint = did_you_mean(name, names)
    raise OptionError(
        "class",
        f"torchmetrics {torchmetrics.__version__} has no metric {name!r}{f': {hint}' if hint else ''}",
    )


def _modules() -> Iterator[Any]:
    """The packages of the domains first: of some classes torchmetrics itself has deprecated doubles."""
    for package in _PACKAGES:
        try:
            yield importlib.import_module(f"torchmetrics.{package}")
        except ImportError:  # of a domain whose own requirements are not installed, or another version's
            continue
    yield torchmetrics


def _options_of(found: type[Metric]) -> Mapping[str, inspect.Parameter]:
    """Of the constructor, with the option of every metric that concerns one process."""
    constructor = found.__new__ if "__new__" in vars(found) else found.__init__
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        on_cpu = inspect.Parameter("compute_on_cpu", inspect.Parameter.KEYWORD_ONLY, default=False)
        named.setdefault("compute_on_cpu", on_cpu)
    return named


def _argument(parameter: inspect.Parameter, value: Any) -> Any:
    """YAML has lists only."""
    annotation = str(parameter.annotation).lower()
    return (
        tuple(value)
        if isinstance(value, list) and "tuple" in annotation and "list" not in annotation
        else value
    )
