"""Evaluates a mode over a whole source, leaving no trace in modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from trainlattice.checkpoint.rng import capture_rng, restore_rng
from trainlattice.data.container import BatchError, Container, container_of, move
from trainlattice.data.source import BatchSource
from trainlattice.training.accumulators import WeightedMeans
from trainlattice.training.callbacks import PhaseName
from trainlattice.training.metrics import PhaseMetrics
from trainlattice.training.mode import Mode


@contextmanager
def evaluating(models: list[nn.Module]) -> Iterator[None]:
    """Every submodule in eval mode; afterwards, also after an exception, each as it was before."""
    modes = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class Surroundings:
    """Context managers around a validation, which are left while a checkpoint is written.

    :param enter: makes them, in order.
    """

    def __init__(self, enter: Callable[[], Iterable[AbstractContextManager[None]]]) -> None:
        self._enter = enter
        self._entered: ExitStack | None = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        try:
            self._go_in()
            yield
        finally:
            self._come_out()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Where nothing was entered, nothing is left. After an exception they stay left."""
        was_inside = self._entered is not None
        self._come_out()
        yield
        if was_inside:
            self._go_in()

    def _go_in(self) -> None:
        self._entered = ExitStack()
        for context in self._enter():
            self._entered.enter_context(context)

    def _come_out(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()


@contextmanager
def keeping_rng() -> Iterator[dict[str, Any]]:
    """Afterwards every random state is as it was, and as it is yielded: what a validation draws, training never
    misses."""
    state = capture_rng()
    try:
        yield state
    finally:
        restore_rng(state)


def evaluate(
    mode: Mode,
    models: list[nn.Module],
    source: BatchSource,
    device: torch.device,
    dtype: torch.dtype,
    autocast: AbstractContextManager[Any],
    metrics: PhaseMetrics | None = None,
    before_batch: Callable[[Container], None] | None = None,
    on_batch: Callable[[Container], None] | None = None,
    *,
    phase: PhaseName = "val",
    epoch: int = 0,
    step: int = 0,
) -> dict[str, float]:
    """Weighted means of the mode's metrics over all batches of a source.

    :param metrics: measured besides, from no batch on.
    :param before_batch: called before each batch.
    :param on_batch: called after each batch.
    :param phase: which it is, for the containers.
    :param epoch: complete epochs, for the containers.
    :param step: optimizer steps that were taken, for the containers.
    :raises BatchError: if there is no batch.
    """
    means, empty = WeightedMeans(), True
    if metrics:
        metrics.reset()
    with evaluating(models), torch.no_grad():
        for batch in source.batches(0):
            container = container_of(batch)
            weight = container["weight"] = mode.weight(container)
            container["phase"], container["epoch"], container["step"] = phase, epoch, step
            if before_batch is not None:
                before_batch(container)
            move(container, device, dtype)
            with autocast:
                mode.evaluate(container)
            means.add(mode.measure(container), weight)
            if metrics:
                metrics.update(container)
            if on_batch is not None:
                on_batch(container)
            empty = False
    if empty:
        raise BatchError("the data to evaluate on yields no batch")
    return mode.summarise(means.compute(), step) | (metrics.compute() if metrics else {})
