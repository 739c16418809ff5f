"""One small batch through the models before a run begins: do the parts fit?

On the meta device first, where tensors have shapes and no values, so that it costs next to nothing for any
model. A model that cannot run there (it reads values, or an operator has no meta kernel) is tried for real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainlattice.data.container import BatchError, container_of, move
from trainlattice.data.seeding import seed_everything
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.training.mode import Mode, Parts, parameter_dtype
from trainlattice.training.validation import evaluating

Models = dict[str, nn.Module]


def probe(
    build_models: Callable[[], Models],
    build_mode: Callable[[Models], Mode],
    batch: Any,
    does_not_fit: Callable[[str, Exception], ConfigError],
    seed: int,
    beside: Sequence[nn.Module] = (),
) -> Models:
    """Builds the models and returns them after a batch of two samples went through.

    :param build_models: builds fresh models on the current default device.
    :param batch: as the dataset yields it.
    :param does_not_fit: makes the error from a description of the batch and what was raised.
    :param seed: of the run.
    :param beside: modules that take part and are not built anew, such as a loss: left as they are.
    """
    on_meta = _passes_on_meta(build_models, build_mode, batch, beside)
    seed_everything(seed)  # the models' weights do not depend on what the probe drew
    models = build_models()
    if not on_meta or _has_lazy_parameters(models) or _types_differ(models, batch):
        mode = build_mode(models)
        try:
            _check(models, mode, batch, torch.device("cpu"), beside)
        except Exception as error:  # any exception of a model or loss means that it cannot take this batch
            raise does_not_fit(describe(batch), error) from error
    return models


def _has_lazy_parameters(models: Models) -> bool:
    """Lazy modules (nn.LazyLinear) get their parameters from the first batch, and the optimizer needs them."""
    return any(is_lazy(p) for model in models.values() for p in (*model.parameters(), *model.buffers()))


def _types_differ(models: Models, batch: Any) -> bool:
    """Operators on the meta device do not compare number formats: such a batch is tried for real."""
    dtype = parameter_dtype(Parts(models, {}, None))
    container = container_of(batch)
    move(container, torch.device("cpu"), dtype)
    inputs = [v for key, v in container.items() if key.startswith("input") and isinstance(v, Tensor)]
    return any(value.dtype != dtype for value in inputs)


def _passes_on_meta(
    build_models: Callable[[], Models],
    build_mode: Callable[[Models], Mode],
    batch: Any,
    beside: Sequence[nn.Module],
) -> bool:
    """False settles nothing: the reason may be the meta device itself, so a real batch decides."""
    try:
        with torch.device("meta"):
            models = build_models()
            _check(models, build_mode(models), batch, torch.device("meta"), beside)
    except Exception:  # any: see above; nothing is hidden, since the real batch raises it again
        return False
    return True


def _check(models: Models, mode: Mode, batch: Any, device: torch.device, beside: Sequence[nn.Module]) -> None:
    container = container_of(batch)
    weight = mode.weight(container)
    if not isinstance(weight, (int, float)) or not 0 <= weight < math.inf:
        raise TypeError(f"the batch counts as {weight!r}, expected a number >= 0 (num_terms of the loss)")
    with evaluating([*models.values(), *beside]), torch.enable_grad():
        move(container, device, parameter_dtype(Parts(models, {}, None)))
        mode.check(container)


def describe(batch: Any) -> str:
    """``input [2, 1, 8, 8] float32, target [2] int64``."""
    try:
        fields = container_of(batch)
    except BatchError as error:
        return str(error)
    return ", ".join(
        f"{key} {list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        if isinstance(value, Tensor)
        else f"{key} of type {type(value).__name__}"
        for key, value in fields.items()
    )
