"""Calls the targets of components: with what their kind offers and their signature names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedComponent
from trainlattice.contracts.options import OptionError
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError, PluginError, TrainLatticeError
from trainlattice.training.failures import translated


def call_target(resolution: Resolution, component: ResolvedComponent, **available: Any) -> Any:
    """Calls a component's target with those of the arguments of its kind that it names.

    :param available: what has been built so far; a kind offers its targets what its ``arguments`` name.
    """
    target = component.registered.target
    available = {"options": component.options, **available}
    offered = {n: available[n] for n in component.registered.kind.arguments if n in available}
    arguments = _accepted(component, target, offered)
    try:
        return target(**arguments)
    except OptionError as error:
        path = (*component.path, *error.option)
        raise config_error(resolution, path, "invalid-value", error.message) from None
    except TrainLatticeError:
        raise
    except KeyboardInterrupt:
        raise
    except (Exception, SystemExit, GeneratorExit) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise (translated(error) or error) from error
        what = component.registered.what
        raise PluginError(f"{what} could not be built: {type(error).__name__}: {error}") from error


def expect(component: ResolvedComponent, built: Any, kind: Any, name: str) -> None:
    """Raises PluginError if a target returned something else than its kind must be."""
    if not isinstance(built, kind):
        raise PluginError(f"{component.registered.what} returned a {type(built).__name__}, expected {name}")


def takes(component: ResolvedComponent, argument: str) -> bool:
    """Whether the target of a component names an argument of its kind."""
    return argument in inspect.signature(component.registered.target).parameters


def config_error(resolution: Resolution, path: nodes.Path, code: str, message: str) -> ConfigError:
    """A mistake that only building shows, at its place in the configuration."""
    return ConfigError([Diagnostic(code, message, resolution.locate(path), nodes.dotted(path))])


def _accepted(
    component: ResolvedComponent, target: Callable[..., Any], available: dict[str, Any]
) -> dict[str, Any]:
    """The arguments that a target's signature names, as pluggy does for hooks."""
    what = component.registered.what
    if not callable(target):
        raise PluginError(f"the target of {what} is a {type(target).__name__}, which cannot be called")
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError) as error:
        raise PluginError(f"the target of {what} has no signature that can be read: {error}") from error
    # A bare **kwargs names nothing: it may be torch.nn.Module's, which refuses every keyword.
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        positional_only = p.kind is p.POSITIONAL_ONLY
        if positional_only or p.name not in available:
            if positional_only or p.default is p.empty:
                raise PluginError(
                    f"the target of {what} asks for the argument {p.name!r}; a {component.registered.kind.name} "
                    f"is called by keyword with any of: {', '.join(available)}"
                )
    return {p.name: available[p.name] for p in parameters if p.name in available}
