"""Builds a run, takes one window of training and one batch of each evaluation through it, and writes nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Any

import torch
from torch import Tensor

from trainlattice.checkpoint.capture import capture
from trainlattice.config.resolve import Resolution
from trainlattice.data.container import BatchError, Container, container_of
from trainlattice.data.source import LEFT_OUT, BatchSource
from trainlattice.runs.build import Built, build
from trainlattice.runs.tracking import build_trackers
from trainlattice.training.accumulators import WeightedMeans
from trainlattice.training.callbacks import PhaseName
from trainlattice.training.failures import translated
from trainlattice.training.length import steps_per_epoch, total_steps
from trainlattice.training.mode import parameter_dtype
from trainlattice.training.precision import autocast
from trainlattice.training.state import TrainerState
from trainlattice.training.step import Stepper
from trainlattice.training.validation import evaluate

logger = logging.getLogger(__name__)
TIMED_STEPS = 5
"""Steps that the time of one is the median of, after one that is not timed."""


@dataclass(frozen=True)
class PhaseTrial:
    """What one phase made of its first batch.

    :param keys: of the container: key, type and shape, as text.
    :param metrics: what it measured.
    """

    phase: PhaseName
    keys: list[tuple[str, str, str]]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class DryRun:
    """What a run would be.

    :param device: where it ran.
    :param parameters: of all models and losses.
    :param trained: of these, those that an optimizer changes.
    :param bytes_by: memory that is held between two steps: ``weights`` (buffers too), ``gradients``, ``optimizer``.
    :param peak_bytes: most that the device held; None where that is not counted (CPU).
    :param samples: of an epoch; None if the data does not say.
    :param steps_per_epoch: None if the data does not say.
    :param total_steps: of the whole run; None if it is not known.
    :param data_seconds: until the first window was there, loader processes included.
    :param step_seconds: median, smallest and largest of ``TIMED_STEPS`` steps on one window.
    """

    device: str
    parameters: int
    trained: int
    bytes_by: dict[str, int]
    peak_bytes: int | None
    samples: int | None
    steps_per_epoch: int | None
    total_steps: int | None
    data_seconds: float
    step_seconds: tuple[float, float, float]
    phases: list[PhaseTrial]


def dry_run(resolution: Resolution) -> DryRun:
    """
    :raises TrainLatticeError: for whatever would stop the run before its first step or in it.
    """
    for warning in resolution.warnings:
        logger.warning("%s", warning.render())
    build_trackers(resolution)  # a library or a key may be missing
    try:
        return _dry_run(resolution, build(resolution))
    except Exception as error:
        known = translated(error)
        if known is not None:
            raise known from error
        raise


def _dry_run(resolution: Resolution, built: Built) -> DryRun:
    settings, parts, device = resolution.config.trainer, built.parts, built.strategy.device
    counts = device.type == "cuda"
    if counts:
        torch.cuda.reset_peak_memory_stats(device)
    started = time.perf_counter()
    batches = list(islice(_batches(built.train), settings.accumulate))
    data_seconds = time.perf_counter() - started
    if not batches:
        raise BatchError("the training data yields no batch")
    stepper = Stepper.of(
        settings, built.mode, parts, device, keeps_containers=True, metrics=built.metrics["train"]
    )
    built.guard.begin(TrainerState())
    window, metrics = _step(stepper, batches)
    built.guard.require_clean()
    for update in parts.updates.values():
        update.scheduler = None  # one that counts has no more steps than the run: it is not to be timed
    train = PhaseTrial("train", _keys(window[0]), metrics | built.metrics["train"].compute())
    seconds = []
    for _ in range(TIMED_STEPS):
        begun = time.perf_counter()
        _step(stepper, batches)
        seconds.append(time.perf_counter() - begun)
    held = {name: _bytes(tensors) for name, tensors in _held(built).items()}
    peak = torch.cuda.max_memory_allocated(device) if counts else None
    sources: dict[PhaseName, BatchSource | None] = {"val": built.val, "test": built.test}
    phases = [train, *(_evaluated(built, p, s, settings.precision) for p, s in sources.items() if s)]
    modules = [*parts.models.values(), *parts.loss_modules().values()]
    trained = {id(p): p.numel() for update in parts.updates.values() for p in update.parameters}
    return DryRun(
        str(device),
        sum(p.numel() for module in modules for p in module.parameters()),
        sum(trained.values()),
        held,
        peak,
        built.train.num_samples,
        steps_per_epoch(built.train, settings.accumulate),
        total_steps(settings, built.train),
        data_seconds,
        (median(seconds), min(seconds), max(seconds)),
        phases,
    )


def _batches(source: BatchSource) -> Iterator[Any]:
    return (batch for batch in source.batches(0) if batch is not LEFT_OUT)


def _step(stepper: Stepper, batches: list[Any]) -> tuple[list[Container], dict[str, float]]:
    """One step on these batches, complete on the device; its containers, and what it measured."""
    window = [container_of(batch) for batch in batches]
    for container in window:
        container |= {"phase": "train", "epoch": 0, "step": 0}
    result = stepper.run(window)
    means = WeightedMeans()
    for measured, weight in zip(result.measured, result.weights, strict=True):
        means.add(measured, weight)
    return window, means.compute()  # brings numbers to the host: the step is over


class _First:
    """The first batch of a source alone."""

    def __init__(self, source: BatchSource) -> None:
        self.source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self.source, name)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Any]:
        return islice(_batches(self.source), 1)


def _evaluated(built: Built, phase: PhaseName, source: BatchSource, precision: Any) -> PhaseTrial:
    keys: list[tuple[str, str, str]] = []
    device = built.strategy.device
    metrics = evaluate(
        built.mode,
        built.parts.modules(),
        _First(source),
        device,
        parameter_dtype(built.parts),
        autocast(precision, device),
        built.metrics[phase],
        on_batch=lambda container: keys.extend(_keys(container)),
        phase=phase,
    )
    return PhaseTrial(phase, keys, metrics)


def _keys(container: Container) -> list[tuple[str, str, str]]:
    found = []
    for key, value in container.items():
        if isinstance(value, Tensor):
            found.append((key, str(value.dtype).removeprefix("torch."), str(list(value.shape))))
        else:
            plain = isinstance(value, (int, float, str))
            found.append((key, type(value).__name__, str(value) if plain else ""))
    return found


def _held(built: Built) -> dict[str, list[Tensor]]:
    """What stays between two steps, by what it is."""
    modules = built.parts.modules()
    weights = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    gradients = [p.grad for module in modules for p in module.parameters() if p.grad is not None]
    states = capture({role: update.optimizer for role, update in built.parts.updates.items()})
    return {"weights": weights, "gradients": gradients, "optimizer": list(_tensors(states))}


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for held in value.values():
            yield from _tensors(held)
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from _tensors(held)


def _bytes(tensors: list[Tensor]) -> int:
    """Of tensors that share memory, once."""
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.numel()}.values()
    )
