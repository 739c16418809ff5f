"""Evaluates a mode over a whole source, leaving no trace in modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from trainlattice.checkpoint.rng import capture_rng, restore_rng
from trainlattice.data.container import BatchError, Container, container_of, move
from trainlattice.data.source import BatchSource
from trainlattice.training.accumulators import WeightedMeans
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
    on_batch: Callable[[Container], None] | None = None,
    *,
    epoch: int = 0,
) -> dict[str, float]:
    """Weighted means of the mode's metrics over all batches of a source.

    :param on_batch: called after each batch.
    :param epoch: complete epochs, for the containers.
    :raises BatchError: if there is no batch.
    """
    means, empty = WeightedMeans(), True
    with evaluating(models), torch.no_grad():
        for batch in source.batches(0):
            container = container_of(batch)
            weight = container["weight"] = mode.weight(container)
            container["epoch"] = epoch
            move(container, device, dtype)
            with autocast:
                mode.evaluate(container)
            means.add(mode.measure(container), weight)
            if on_batch is not None:
                on_batch(container)
            empty = False
    if empty:
        raise BatchError("the data to evaluate on yields no batch")
    return means.compute()
