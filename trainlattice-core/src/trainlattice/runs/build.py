"""From a resolved configuration to the objects of a run. Creates nothing on disk."""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch import nn
from torch.utils.data import IterableDataset

from trainlattice.config.contracts import model_problems, task_problems
from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedComponent
from trainlattice.contracts.kind import CORE_KINDS
from trainlattice.contracts.options import OptionError
from trainlattice.contracts.records import DatasetContract, LossContract, ModelContract
from trainlattice.contracts.settings import DatasetSettings
from trainlattice.data.container import BatchError
from trainlattice.data.loader import MapSource
from trainlattice.data.seeding import seed_everything
from trainlattice.data.source import BatchSource
from trainlattice.data.splits import MapDataset, Splits, TensorData
from trainlattice.data.stream import StreamSource
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.diagnostic import Diagnostic
from trainlattice.diagnostics.errors import ConfigError, PluginError, TrainLatticeError
from trainlattice.runs.probe import probe
from trainlattice.training.callbacks import Callback
from trainlattice.training.failures import translated
from trainlattice.training.mode import Mode, Parts
from trainlattice.training.nonfinite import FiniteGuard
from trainlattice.training.precision import grad_scaler
from trainlattice.training.strategy import SingleDevice, Strategy
from trainlattice.training.targets import TargetError, class_target, not_finite, outside_classes
from trainlattice.training.trainer import steps_per_epoch, total_steps
from trainlattice.training.update import Update


@dataclass(frozen=True)
class Built:
    """The objects of a run; its contracts have been checked.

    :param budget: optimizer steps that the schedule was made for.
    """

    mode: Mode
    parts: Parts
    strategy: Strategy
    train: BatchSource
    val: BatchSource | None
    test: BatchSource | None
    callbacks: list[tuple[str, Callback]]
    budget: int | None
    guard: FiniteGuard


def build(resolution: Resolution, *, budget: int | None = None, observed: bool = True) -> Built:
    """Opens the data and builds everything, in the order: data, models, optimizers, loss, mode, callbacks.

    :param budget: of the checkpoint that is resumed; by default the length of the run.
    :param observed: whether callbacks are built too.
    :raises ConfigError: for an option or contract that only the opened data shows to be wrong.
    """
    config = resolution.config
    strategy = SingleDevice(choose_device(resolution))
    seed_everything(config.experiment.seed)
    builder = _Builder(resolution)
    builder.require_targets()
    splits = builder.splits()
    train, val, test = builder.sources(splits)
    budget = budget or total_steps(config.trainer, steps_per_epoch(train, config.trainer.accumulate))
    guard = FiniteGuard(config.trainer.nonfinite, strategy.device, budget=config.trainer.nonfinite_budget)
    loss = builder.loss(splits.contract)
    builder.targets(splits, loss)
    others = builder.others(splits.contract)
    try:
        sample = train.sample_batch()
    except BatchError as error:
        raise builder.no_data(str(error)) from error
    models = probe(
        lambda: builder.models(splits.contract),
        lambda models: builder.mode(Parts(models, {}, loss, splits.contract, others)),
        sample,
        builder.does_not_fit,
        config.experiment.seed,
        beside=[loss] if isinstance(loss, nn.Module) else [],
    )
    models = {role: strategy.prepare(model) for role, model in models.items()}
    builder.compile(models)
    if isinstance(loss, nn.Module):
        loss = strategy.prepare(loss)
    parts = Parts(
        models, builder.updates(models, loss, strategy, budget, guard), loss, splits.contract, others
    )
    mode = builder.mode(parts)
    callbacks = builder.callbacks() if observed else []
    # Weights are drawn; what follows starts from the seed again, however many numbers the build drew.
    seed_everything(config.experiment.seed)
    return Built(mode, parts, strategy, train, val, test, callbacks, budget, guard)


def choose_device(resolution: Resolution) -> torch.device:
    """``trainer.device`` on this machine. Raises ConfigError if it does not have that device."""
    name = resolution.config.trainer.device
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if available else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= available:
        has = f"{available} CUDA devices" if available else "no CUDA device"
        raise _error(resolution, ("trainer", "device"), "device", f"{name!r}: this machine has {has}")
    if resolution.config.trainer.precision == "fp16" and device.type != "cuda":
        raise _error(
            resolution,
            ("trainer", "precision"),
            "device",
            "fp16 needs a CUDA device, and the run is on the CPU",
        )
    return device


class _Builder:
    def __init__(self, resolution: Resolution) -> None:
        self.resolution = resolution
        self.config = resolution.config

    def call(self, component: ResolvedComponent, **available: Any) -> Any:
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
            raise _error(self.resolution, path, "invalid-value", error.message) from None
        except TrainLatticeError:
            raise
        except KeyboardInterrupt:
            raise
        except (Exception, SystemExit, GeneratorExit) as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise (translated(error) or error) from error
            what = component.registered.what
            raise PluginError(f"{what} could not be built: {type(error).__name__}: {error}") from error

    def require_targets(self) -> None:
        """Imports the code of every component: what cannot be imported is named before any data is opened."""
        for component in self.config.components():
            _ = component.registered.target

    def splits(self) -> Splits:
        """Opens the dataset; what it yields fits the configuration as far as its contract states."""
        component = self.config.one("dataset")
        assert component is not None
        splits = self.call(component, seed=self.config.experiment.seed)
        if not isinstance(splits, Splits):
            raise PluginError(
                f"{component.registered.what} returned a {type(splits).__name__}, "
                "expected trainlattice.data.Splits"
            )
        for name in ("train", "val", "test"):
            split = getattr(splits, name)
            if isinstance(split, Iterator):
                raise self.no_data(
                    f"the {name} split of dataset {component.name!r} is a {type(split).__name__}, which can be "
                    "read only once; give an object whose __iter__ begins anew"
                )
            if split is not None and hasattr(split, "__len__") and len(split) == 0:
                hint = "" if name == "train" else f"; a dataset without {name} data has {name}=None"
                raise self.no_data(f"the {name} split of dataset {component.name!r} is empty{hint}")
        if splits.val is None and self.config.trainer.early_stopping is not None:
            message = f"dataset {component.name!r} has no validation data to stop early on"
            raise _error(self.resolution, ("trainer", "early_stopping"), "contract", message)
        self.contracts(component, splits.contract)
        return splits

    def sources(self, splits: Splits) -> tuple[BatchSource, BatchSource | None, BatchSource | None]:
        """The batches of each split; those of training are shuffled."""
        component = self.config.one("dataset")
        assert component is not None
        assert isinstance(component.settings, DatasetSettings)
        settings = component.settings

        def source(split: Any, *, trains: bool) -> BatchSource:
            common: dict[str, Any] = {
                "batch_size": settings.batch_size,
                "seed": self.config.experiment.seed,
                "num_workers": settings.num_workers,
                "drop_last": settings.drop_last and trains,
                "start_method": settings.start_method,
            }
            self.require_sendable(split, settings)
            # torch gives its iterable datasets a __getitem__ that only raises.
            if isinstance(split, MapDataset) and not isinstance(split, IterableDataset):
                return MapSource(split, shuffle=trains, **common)
            return StreamSource(split, **common)

        train = source(splits.train, trains=True)
        if train.batches_per_epoch == 0:
            raise self.no_data(
                f"drop_last leaves nothing of the training samples: there are fewer than batch_size "
                f"({settings.batch_size})"
            )
        val, test = (source(s, trains=False) if s is not None else None for s in (splits.val, splits.test))
        return train, val, test

    def require_sendable(self, split: Any, settings: DatasetSettings) -> None:
        """Loader processes that are not forked get the dataset as a pickle."""
        method = settings.start_method or multiprocessing.get_start_method()
        if settings.num_workers == 0 or method == "fork":
            return
        try:
            ForkingPickler.dumps(split)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _error(
                self.resolution,
                ("dataset", "num_workers"),
                "not-picklable",
                f"the dataset, a {type(split).__name__}, cannot be sent to loader processes ({error}); use "
                "module-level functions instead of lambdas, start_method: fork, or num_workers: 0",
            ) from error

    def no_data(self, message: str, code: str = "no-data") -> ConfigError:
        return _error(self.resolution, ("dataset",), code, message)

    def contracts(self, dataset: ResolvedComponent, opened: DatasetContract) -> None:
        """The static comparison again, with what the opened data states."""
        problems: list[Diagnostic] = []
        model, loss = self.config.one("model"), self.config.one("loss")
        locate = self.resolution.locate
        if model is not None and isinstance(model.contract, ModelContract):
            problems += model_problems(model, model.contract, dataset.name, opened, locate)
        if loss is not None and isinstance(loss.contract, LossContract):
            problems += task_problems(loss, loss.contract, dataset.name, opened, locate)
        if problems:
            raise ConfigError(problems)

    def models(self, data: DatasetContract) -> dict[str, nn.Module]:
        models = {}
        for role, component in self.roles("model").items():
            models[role] = self.call(component, data=data)
            if not isinstance(models[role], nn.Module):
                raise PluginError(
                    f"{component.registered.what} returned a {type(models[role]).__name__}, "
                    "expected a torch.nn.Module"
                )
        return models

    def roles(self, section: str) -> dict[str, ResolvedComponent]:
        """The components of a section by role; a section with one component has its own name as role."""
        found = self.config.sections.get(section)
        if isinstance(found, ResolvedComponent):
            return {section: found}
        return dict(found) if isinstance(found, Mapping) else {}

    def loss(self, data: DatasetContract) -> Callable[..., Any] | None:
        component = self.config.one("loss")
        built: Callable[..., Any] | None = self.call(component, data=data) if component else None
        return built

    def targets(self, splits: Splits, loss: Any) -> None:
        """Targets in memory are looked at once, before the run: integers of any width become int64, and a
        class that does not exist or a target that is NaN is shown with its row."""
        for name in ("train", "val", "test"):
            split = getattr(splits, name)
            if not isinstance(split, TensorData):
                continue
            fault = None
            try:
                if getattr(loss, "task", None) == "classification":
                    split.targets = class_target(split.targets)
                    if splits.contract.num_outputs is not None:
                        ignored = getattr(loss, "ignore_index", None)
                        fault = outside_classes(split.targets, splits.contract.num_outputs, ignored)
                else:
                    fault = not_finite(split.targets)
            except TargetError as error:
                fault = str(error)
            if fault is not None:
                dataset = self.config.one("dataset")
                named = dataset.name if dataset else ""
                raise self.no_data(f"the {name} split of dataset {named!r}: {fault}", code="target")

    def compile(self, models: Mapping[str, nn.Module]) -> None:
        """Compiles the models in place, so that their state keeps its names."""
        settings = self.config.trainer.compile
        if settings is None:
            return
        mode = None if settings.mode == "default" else settings.mode
        for model in models.values():
            try:
                model.compile(mode=mode, backend=settings.backend, dynamic=settings.dynamic)
            except RuntimeError as error:  # dynamo's errors, such as a backend that does not exist
                raise (translated(error) or error) from error

    def others(self, data: DatasetContract) -> dict[str, Any]:
        """Components of kinds that plugins brought, by section: one, or a list or mapping of them."""
        core_sections = {kind.section for kind in CORE_KINDS}
        built: dict[str, Any] = {}
        known = {"seed": self.config.experiment.seed, "data": data}
        for section, found in self.config.sections.items():
            if section in core_sections:
                continue
            if isinstance(found, ResolvedComponent):
                built[section] = self.call(found, **known)
            elif isinstance(found, tuple):
                built[section] = [self.call(component, **known) for component in found]
            else:
                built[section] = {role: self.call(component, **known) for role, component in found.items()}
        return built

    def updates(
        self,
        models: Mapping[str, nn.Module],
        loss: Any,
        strategy: Strategy,
        budget: int | None,
        guard: FiniteGuard,
    ) -> dict[str, Update]:
        """One update for each optimizer. A single optimizer takes the parameters of every model, and of a loss
        that learns too (a temperature, class centres)."""
        optimizers, schedulers = self.roles("optimizer"), self.roles("scheduler")
        updates = {}
        for role, component in optimizers.items():
            owners = [models[role]] if role in models else list(models.values())
            if role not in models and isinstance(loss, nn.Module):
                owners.append(loss)
            params = [p for model in owners for p in model.parameters() if p.requires_grad]
            if not params:
                message = "the model has no parameter to train"
                raise _error(self.resolution, ("model",), "contract", message)
            optimizer = self.call(component, params=params)
            schedule = schedulers.get(role) or schedulers.get("scheduler")
            scheduler = (
                self.call(schedule, optimizer=optimizer, total_steps=budget) if schedule is not None else None
            )
            updates[role] = Update(
                optimizer,
                strategy,
                scheduler=scheduler,
                scaler=grad_scaler(self.config.trainer.precision, strategy.device),
                max_grad_norm=self.config.trainer.max_grad_norm,
                guard=guard,
            )
        return updates

    def mode(self, parts: Parts) -> Mode:
        component = self.config.one("mode")
        assert component is not None
        mode = self.call(component, parts=parts)
        if not isinstance(mode, Mode):
            raise PluginError(
                f"{component.registered.what} returned a {type(mode).__name__}, expected a Mode"
            )
        return mode

    def callbacks(self) -> list[tuple[str, Callback]]:
        """By the name under which their state is saved: the component's, numbered if it stands twice."""
        named: dict[str, Callback] = {}
        for component in self.config.many("callbacks"):
            name, number = component.name, 2
            while name in named:
                name, number = f"{component.name}#{number}", number + 1
            callback = self.call(component)
            if not isinstance(callback, Callback):
                raise PluginError(
                    f"{component.registered.what} returned a {type(callback).__name__}, expected a Callback"
                )
            named[name] = callback
        return list(named.items())

    def does_not_fit(self, batch: str, error: Exception) -> ConfigError:
        """A forward pass that failed: model, loss and dataset do not go together."""
        dataset, model = self.config.one("dataset"), self.config.one("model")
        names = f"model {model.name!r}" if model else "the models"
        return _error(
            self.resolution,
            ("model",),
            "contract",
            f"{names} and dataset {dataset.name if dataset else '?'!r} do not fit: a batch of {batch} gave "
            f"{type(error).__name__}: {' '.join(str(error).split())}",
        )


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


def _error(resolution: Resolution, path: nodes.Path, code: str, message: str) -> ConfigError:
    return ConfigError([Diagnostic(code, message, resolution.locate(path), nodes.dotted(path))])
