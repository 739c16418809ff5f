"""The metrics of a configuration: built for each phase, and tried with two samples before the run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from trainlattice.config.contracts import own_name
from trainlattice.config.resolve import Resolution
from trainlattice.contracts.records import DatasetContract
from trainlattice.contracts.settings import MetricSettings
from trainlattice.data.container import Container, container_of, move
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.runs.targets import call_target, config_error, expect
from trainlattice.training.callbacks import PhaseName
from trainlattice.training.metrics import Metric, NamedMetric, PhaseMetrics
from trainlattice.training.mode import Mode, Parts, parameter_dtype
from trainlattice.training.precision import autocast
from trainlattice.training.validation import evaluating

_NEEDED = "a metric: update, compute, reset, state_dict and load_state_dict"


def build_metrics(
    resolution: Resolution, data: DatasetContract, device: torch.device
) -> dict[PhaseName, PhaseMetrics]:
    """An object for each metric and each phase in which it is measured."""
    found: dict[PhaseName, list[NamedMetric]] = {"train": [], "val": [], "test": []}
    for component in resolution.config.many("metrics"):
        settings = component.settings
        assert isinstance(settings, MetricSettings)
        for phase in settings.phases:
            metric = call_target(resolution, component, data=data)
            expect(component, metric, Metric, _NEEDED)
            if isinstance(metric, nn.Module):
                metric = metric.to(device)
            found[phase].append(NamedMetric(own_name(component), metric, settings.inputs))
    return {phase: PhaseMetrics(metrics) for phase, metrics in found.items()}


def try_metrics(
    resolution: Resolution,
    metrics: Mapping[PhaseName, PhaseMetrics],
    mode: Mode,
    parts: Parts,
    batch: Any,
    device: torch.device,
) -> None:
    """Two samples through the model and every metric: what one cannot take is shown at its line. What one
    warns of means nothing: that they hold few classes, for example."""
    container = container_of(batch)
    container["weight"] = mode.weight(container)
    container["epoch"] = container["step"] = 0
    with evaluating(parts.modules()), torch.no_grad():
        move(container, device, parameter_dtype(parts))
        with autocast(resolution.config.trainer.precision, device):
            mode.evaluate(container)
    for phase, measured in metrics.items():
        for named in measured.metrics:
            alone = PhaseMetrics([named])
            try:
                with warnings.catch_warnings():  # of a set that two samples cannot stand for
                    warnings.simplefilter("ignore")
                    alone.update(container)
                    values = alone.compute()
            except Exception as error:  # whatever a metric raises, it cannot take what it is given
                raise _does_not_fit(resolution, named, container, error) from error
            named.metric.reset()
            if phase == "val":
                _require_monitorable(resolution, named, values)


def _require_monitorable(resolution: Resolution, named: NamedMetric, values: Mapping[str, Any]) -> None:
    """If it is what ``trainer.monitor`` names: it is one number, and it is known which way it is better."""
    trainer = resolution.config.trainer
    name = trainer.monitor.removeprefix("val_")
    if not trainer.monitor.startswith("val_") or name not in values:
        return
    if not isinstance(values[name], (int, float)):
        message = f"{trainer.monitor!r} is no single number: the best of its values cannot be told"
        raise config_error(resolution, ("trainer", "monitor"), "contract", message)
    if trainer.monitor_mode == "auto" and getattr(named.metric, "higher_is_better", None) is None:
        message = (
            f"the metric {named.name!r} does not say whether a larger value is better: "
            "set trainer.monitor_mode to max or min"
        )
        raise config_error(resolution, ("trainer", "monitor"), "contract", message)


def _does_not_fit(
    resolution: Resolution, named: NamedMetric, container: Container, error: Exception
) -> ConfigError:
    component = next(c for c in resolution.config.many("metrics") if own_name(c) == named.name)
    given = ", ".join(f"{name}: {key} {_form(container.get(key))}" for name, key in named.inputs.items())
    text = error.args[0] if isinstance(error, KeyError) and error.args else error
    return config_error(
        resolution,
        component.path,
        "contract",
        f"metric {named.name!r} cannot take what it is given ({given}): {' '.join(str(text).split())}",
    )


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    return "absent" if value is None else f"of type {type(value).__name__}"
