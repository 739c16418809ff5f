"""From a resolved configuration to the objects of a run. Creates nothing on disk."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainlattice.config.contracts import own_name
from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedComponent
from trainlattice.contracts.kind import CORE_KINDS
from trainlattice.contracts.records import DatasetContract
from trainlattice.contracts.settings import (
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    PostprocessSettings,
)
from trainlattice.data.seeding import seed_everything
from trainlattice.data.source import BatchSource
from trainlattice.data.splits import Splits
from trainlattice.diagnostics import nodes
from trainlattice.diagnostics.errors import ConfigError, PluginError
from trainlattice.runs.grouping import apply_groups, check_groups
from trainlattice.runs.measuring import build_metrics, try_metrics
from trainlattice.runs.opening import DataOpener
from trainlattice.runs.probe import probe
from trainlattice.runs.targets import call_target, config_error, expect, takes
from trainlattice.training.callbacks import Callback, PhaseName
from trainlattice.training.failures import translated
from trainlattice.training.groups import named_parameters
from trainlattice.training.length import total_steps
from trainlattice.training.losses import LossTerm, LossTerms
from trainlattice.training.metrics import PhaseMetrics
from trainlattice.training.mode import Mode, Parts
from trainlattice.training.nonfinite import FiniteGuard
from trainlattice.training.postprocess import PostProcessing, PostProcessor
from trainlattice.training.precision import grad_scaler
from trainlattice.training.strategy import SingleDevice, Strategy
from trainlattice.training.update import Update


@dataclass(frozen=True)
class Built:
    """The objects of a run; its contracts have been checked.

    :param metrics: by phase, objects of their own.
    :param budget: optimizer steps that the schedule was made for.
    """

    mode: Mode
    parts: Parts
    strategy: Strategy
    train: BatchSource
    val: BatchSource | None
    test: BatchSource | None
    callbacks: list[tuple[str, Callback]]
    metrics: dict[PhaseName, PhaseMetrics]
    budget: int | None
    guard: FiniteGuard
    splits: Splits


def build(
    resolution: Resolution,
    *,
    budget: int | None = None,
    implementations: Mapping[str, str] | None = None,
) -> Built:
    """Opens the data and builds everything, in the order: data, loss, components of other kinds, models, optimizers
    and schedules, mode, callbacks.

    :param budget: of the checkpoint that is resumed; by default the length of the run.
    :param implementations: of the optimizers of that checkpoint by role: other kernels round otherwise.
    :raises ConfigError: for an option or contract that only the opened data shows to be wrong.
    """
    config = resolution.config
    strategy = SingleDevice(choose_device(resolution))
    seed_everything(config.experiment.seed)
    builder = _Builder(resolution, implementations or {})
    builder.require_targets()
    check_groups(resolution)
    opener = DataOpener(resolution)
    splits = opener.splits()
    loss = builder.loss(splits.contract)
    train, val, test = opener.sources(splits, loss)
    opener.require_validation_data(val)
    budget = budget or total_steps(config.trainer, train)
    guard = FiniteGuard(config.trainer.nonfinite, strategy.device, budget=config.trainer.nonfinite_budget)
    opener.targets(splits, loss)
    others, inputs = builder.others(splits.contract), builder.inputs()
    losses = loss.modules() if loss is not None else {}
    models = probe(
        lambda: builder.models(splits.contract),
        lambda models: builder.mode(
            Parts(
                models,
                {},
                loss,
                splits.contract,
                others,
                inputs,
                postprocess=builder.postprocess(splits.contract, models),
            )
        ),
        opener.sample_batch(train),
        builder.does_not_fit,
        config.experiment.seed,
        beside=list(losses.values()),
    )
    models = {role: strategy.prepare(model) for role, model in models.items()}
    builder.compile(models)
    if loss is not None:
        loss.prepare(strategy.prepare)
    losses = loss.modules() if loss is not None else {}
    updates = builder.updates(models, losses, strategy, budget, guard)
    weighting = config.trainer.accumulate_weighting
    postprocess = builder.postprocess(splits.contract, models)
    for module in postprocess.modules():
        strategy.prepare(module)
    parts = Parts(models, updates, loss, splits.contract, others, inputs, weighting, postprocess)
    mode = builder.mode(parts)
    metrics = build_metrics(resolution, splits.contract, strategy.device)
    if any(metrics.values()):
        try_metrics(resolution, metrics, mode, parts, opener.sample_batch(train), strategy.device)
    callbacks = builder.callbacks(parts)
    # Weights are drawn; what follows starts from the seed again, however many numbers the build drew.
    seed_everything(config.experiment.seed)
    return Built(mode, parts, strategy, train, val, test, callbacks, metrics, budget, guard, splits)


def choose_device(resolution: Resolution) -> torch.device:
    """``trainer.device`` on this machine. Raises ConfigError if it does not have that device."""
    name = resolution.config.trainer.device
    available = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if available else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= available:
        has = f"{available} CUDA devices" if available else "no CUDA device"
        raise config_error(resolution, ("trainer", "device"), "device", f"{name!r}: this machine has {has}")
    if resolution.config.trainer.precision == "fp16" and device.type != "cuda":
        raise config_error(
            resolution,
            ("trainer", "precision"),
            "device",
            "fp16 needs a CUDA device, and the run is on the CPU",
        )
    return device


class _Builder:
    def __init__(self, resolution: Resolution, implementations: Mapping[str, str]) -> None:
        self.resolution = resolution
        self.config = resolution.config
        self.implementations = implementations

    def call(self, component: ResolvedComponent, **available: Any) -> Any:
        return call_target(self.resolution, component, **available)

    def require_targets(self) -> None:
        """Imports the code of every component: what cannot be imported is named before any data is opened."""
        for component in self.config.components():
            _ = component.registered.target

    def models(self, data: DatasetContract) -> dict[str, nn.Module]:
        models = {}
        for role, component in self.roles("model").items():
            models[role] = self.call(component, data=data)
            expect(component, models[role], nn.Module, "a torch.nn.Module")
        return models

    def roles(self, section: str) -> dict[str, ResolvedComponent]:
        """The components of a section by role; a section with one component has its own name as role."""
        found = self.config.sections.get(section)
        if isinstance(found, ResolvedComponent):
            return {section: found}
        return dict(found) if isinstance(found, Mapping) else {}

    def loss(self, data: DatasetContract) -> LossTerms | None:
        terms = []
        for component in self.config.all("loss"):
            built: Callable[..., Any] = self.call(component, data=data)
            expect(component, built, Callable, "something that can be called as loss(pred, target)")
            assert isinstance(component.settings, LossSettings)
            terms.append(LossTerm(own_name(component), built, component.settings, component.path))
        return LossTerms(terms) if terms else None

    def postprocess(self, data: DatasetContract, models: Mapping[str, nn.Module]) -> PostProcessing:
        """Each writes the keys that its settings name; by default one of the component's name."""
        found: list[PostProcessor] = []
        taken: set[str] = set()
        for component in self.config.many("postprocess"):
            settings = component.settings
            assert isinstance(settings, PostprocessSettings)
            function: Callable[..., Any] = self.call(component, data=data, models=models)
            expect(component, function, Callable, "something that can be called with its inputs")
            name = instance_name(component.registered.component.name, taken)
            taken.add(name)
            spreads = settings.unfurl or settings.outputs is not None
            output = None if spreads else settings.output or component.registered.component.name
            found.append(
                PostProcessor(
                    name,
                    function,
                    settings.inputs,
                    output,
                    settings.outputs,
                    settings.phases,
                    component.path,
                )
            )
        return PostProcessing(tuple(found))

    def inputs(self) -> dict[str, dict[str, str]]:
        """By role of a model: what its forward pass takes from the container, where the configuration says."""
        return {
            role: component.settings.inputs
            for role, component in self.roles("model").items()
            if isinstance(component.settings, ModelSettings) and component.settings.inputs
        }

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
        losses: Mapping[str, nn.Module],
        strategy: Strategy,
        budget: int | None,
        guard: FiniteGuard,
    ) -> dict[str, Update]:
        """One update for each optimizer. A single optimizer takes the parameters of every model, and of a loss
        that learns too (a temperature, class centres)."""
        optimizers, schedulers = self.roles("optimizer"), self.roles("scheduler")
        updates = {}
        for role, component in optimizers.items():
            owners = {role: models[role]} if role in models else {**models, **losses}
            named = named_parameters(owners)
            if not named:
                message = "the model has no parameter to train"
                raise config_error(self.resolution, ("model",), "contract", message)
            optimizer = self.optimizer(role, component, [held.parameter for held in named])
            apply_groups(self.resolution, component, optimizer, named)
            schedule = schedulers.get(role) or schedulers.get("scheduler")
            scheduler = self.scheduler(schedule, optimizer, budget) if schedule is not None else None
            updates[role] = Update(
                optimizer,
                strategy,
                scheduler=scheduler,
                scaler=grad_scaler(self.config.trainer.precision, strategy.device),
                max_grad_norm=self.config.trainer.max_grad_norm,
                guard=guard,
            )
        return updates

    def optimizer(self, role: str, component: ResolvedComponent, params: list[nn.Parameter]) -> Optimizer:
        """An optimizer with the implementation that the checkpoint had, else with the one asked for."""
        settings = component.settings
        wanted = settings.implementation if isinstance(settings, OptimizerSettings) else "auto"
        if wanted != "auto" and not takes(component, "implementation"):
            raise config_error(
                self.resolution,
                (*component.path, "implementation"),
                "invalid-value",
                f"{component.registered.what} has one implementation only: leave this key out",
            )
        optimizer: Optimizer = self.call(
            component, params=params, implementation=self.implementations.get(role, wanted)
        )
        expect(component, optimizer, Optimizer, "a torch.optim.Optimizer")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise PluginError(
                f"{component.registered.what} evaluates the loss several times a step (a closure)"
            )
        return optimizer

    def scheduler(
        self, component: ResolvedComponent, optimizer: Optimizer, budget: int | None
    ) -> LRScheduler:
        scheduler: LRScheduler = self.call(component, optimizer=optimizer, total_steps=budget)
        expect(component, scheduler, LRScheduler, "a torch.optim.lr_scheduler.LRScheduler")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise PluginError(
                f"{component.registered.what} is stepped by a metric, and schedules here by the optimizer step"
            )
        return scheduler

    def mode(self, parts: Parts) -> Mode:
        component = self.config.one("mode")
        assert component is not None
        mode: Mode = self.call(component, parts=parts)
        expect(component, mode, Mode, "a Mode")
        return mode

    def callbacks(self, parts: Parts) -> list[tuple[str, Callback]]:
        """By the name under which their state is saved: the component's, numbered if it stands twice."""
        named: dict[str, Callback] = {}
        for component in self.config.many("callbacks"):
            callback = self.call(component, parts=parts)
            expect(component, callback, Callback, "a Callback")
            named[instance_name(component.name, named)] = callback
        return list(named.items())

    def does_not_fit(self, batch: str, error: Exception) -> ConfigError:
        """A forward pass that failed: model, post-processing, loss and dataset do not go together. Shown where it
        failed, if the configuration has a line for it."""
        dataset, model = self.config.one("dataset"), self.config.one("model")
        names = f"model {model.name!r}" if model else "the models"
        where = ""
        path: nodes.Path = ("model",)
        for blamed in _owners(error):
            where = f" in {'loss' if isinstance(blamed, LossTerm) else 'post-processor'} {blamed.name!r}"
            if self.resolution.locate(blamed.path) is not None:
                path = blamed.path
        return config_error(
            self.resolution,
            path,
            "contract",
            f"{names} and dataset {dataset.name if dataset else '?'!r} do not fit: a batch of {batch} gave "
            f"{type(error).__name__}{where}: {' '.join(str(error).split())}",
        )


def _owners(error: Exception) -> Iterator[LossTerm | PostProcessor]:
    """The parts of the configuration whose code an exception came through, the innermost last."""
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, (LossTerm, PostProcessor)):
            yield owner
        trace = trace.tb_next


def instance_name(component: str, taken: Container[str]) -> str:
    """``foo``, and ``foo#2`` for the second component of that name."""
    name, number = component, 2
    while name in taken:
        name, number = f"{component}#{number}", number + 1
    return name
