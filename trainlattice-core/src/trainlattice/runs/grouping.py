"""The groups of an optimizer: their options checked before anything is opened, then applied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import ValidationError
from torch.optim import Optimizer

from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedComponent
from trainlattice.contracts.options import as_json
from trainlattice.contracts.settings import GroupSettings, OptimizerSettings
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.diagnostics.hints import did_you_mean
from trainlattice.runs.targets import config_error
from trainlattice.training.groups import GroupingError, NamedParameter, grouped, regroup


def check_groups(resolution: Resolution) -> None:
    """Every option of every group is one of its optimizer, with a value that this takes.

    :raises ConfigError: with all that are not, each at its line.
    """
    problems: list[Diagnostic] = []
    for component, number, group in _groups(resolution):
        path = (*component.path, "groups", number)
        try:
            _values(component, group)
        except ValidationError as error:
            for fault in error.errors():
                name = str(fault["loc"][0]) if fault["loc"] else ""
                problems.append(_problem(resolution, component, (*path, *fault["loc"]), name, fault["msg"]))
    if problems:
        raise ConfigError(problems)


def apply_groups(
    resolution: Resolution,
    component: ResolvedComponent,
    optimizer: Optimizer,
    parameters: Sequence[NamedParameter],
) -> None:
    """Splits the optimizer's parameters as its configuration says; nothing where it says nothing.

    :raises ConfigError: unless each parameter is in exactly one group.
    """
    settings = component.settings
    if not isinstance(settings, OptimizerSettings) or settings.groups is None:
        return
    path = (*component.path, "groups")
    try:
        members = grouped(parameters, [group.wanted for group in settings.groups])
        options = [_values(component, group) for group in settings.groups]
        regroup(optimizer, list(zip(members, options, strict=True)))
    except GroupingError as error:
        place = path if error.group is None else (*path, error.group)
        raise config_error(resolution, place, "contract", str(error)) from None
    except KeyError as error:
        message = f"{component.registered.what} has one {error.args[0]} for all parameters"
        raise config_error(resolution, path, "contract", message) from None


def _groups(resolution: Resolution) -> Iterator[tuple[ResolvedComponent, int, GroupSettings]]:
    for component in resolution.config.components():
        settings = component.settings
        if isinstance(settings, OptimizerSettings):
            for number, group in enumerate(settings.groups or ()):
                yield component, number, group


def _values(component: ResolvedComponent, group: GroupSettings) -> dict[str, Any]:
    """The options of a group as its optimizer's schema reads them."""
    plain = {**as_json(component.options), **group.options}
    checked = type(component.options).model_validate_json(json.dumps(plain))
    return {name: getattr(checked, name) for name in group.options}


def _problem(
    resolution: Resolution, component: ResolvedComponent, path: nodes.Path, name: str, message: str
) -> Diagnostic:
    legal = sorted(type(component.options).model_fields)
    if name not in legal:
        message = f"unknown option {name!r} for {component.registered.what}; options: {', '.join(legal)}"
    hint = did_you_mean(name, legal) if name not in legal else None
    return Diagnostic("invalid-value", message, resolution.locate(path), nodes.dotted(path), suggestion=hint)
