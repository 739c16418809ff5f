"""TrainLattice: one strictly validated YAML file becomes a reproducible PyTorch training run.

The names below are the public surface. Each is imported when it is first used, so that importing
``trainlattice`` costs nothing and registration modules stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainlattice.version import __version__ as __version__

if TYPE_CHECKING:
    from trainlattice.config.resolve import resolve_file as resolve_file
    from trainlattice.contracts.options import OptionError as OptionError
    from trainlattice.contracts.options import Options as Options
    from trainlattice.contracts.tracking import TrackedRun as TrackedRun
    from trainlattice.contracts.tracking import Tracker as Tracker
    from trainlattice.plugin import Component as Component
    from trainlattice.plugin import Kind as Kind
    from trainlattice.plugin import hookimpl as hookimpl
    from trainlattice.plugin.local import register as register
    from trainlattice.plugin.local import register_callback as register_callback
    from trainlattice.plugin.local import register_dataset as register_dataset
    from trainlattice.plugin.local import register_loss as register_loss
    from trainlattice.plugin.local import register_metric as register_metric
    from trainlattice.plugin.local import register_model as register_model
    from trainlattice.plugin.local import register_optimizer as register_optimizer
    from trainlattice.plugin.local import register_postprocessor as register_postprocessor
    from trainlattice.plugin.local import register_scheduler as register_scheduler
    from trainlattice.plugin.local import register_tracker as register_tracker
    from trainlattice.runs.experiment import resume_run as resume_run
    from trainlattice.runs.experiment import run_experiment as run_experiment
    from trainlattice.runs.experiment import run_from_file as run_from_file
    from trainlattice.runs.result import RunResult as RunResult
    from trainlattice.training.callbacks import Callback as Callback
    from trainlattice.training.trainer import Trainer as Trainer

_HOMES = {
    "Callback": "trainlattice.training.callbacks",
    "Component": "trainlattice.plugin",
    "Kind": "trainlattice.plugin",
    "OptionError": "trainlattice.contracts.options",
    "Options": "trainlattice.contracts.options",
    "RunResult": "trainlattice.runs.result",
    "TrackedRun": "trainlattice.contracts.tracking",
    "Tracker": "trainlattice.contracts.tracking",
    "Trainer": "trainlattice.training.trainer",
    "hookimpl": "trainlattice.plugin",
    "register": "trainlattice.plugin.local",
    "register_callback": "trainlattice.plugin.local",
    "register_dataset": "trainlattice.plugin.local",
    "register_loss": "trainlattice.plugin.local",
    "register_metric": "trainlattice.plugin.local",
    "register_model": "trainlattice.plugin.local",
    "register_optimizer": "trainlattice.plugin.local",
    "register_postprocessor": "trainlattice.plugin.local",
    "register_scheduler": "trainlattice.plugin.local",
    "register_tracker": "trainlattice.plugin.local",
    "resolve_file": "trainlattice.config.resolve",
    "resume_run": "trainlattice.runs.experiment",
    "run_experiment": "trainlattice.runs.experiment",
    "run_from_file": "trainlattice.runs.experiment",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainlattice' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
