"""Contract records: what one component promises to those around it, as plain data.

An options class returns one from ``contract()``; a field that is None is unknown until the component is
built or opened, and is then not compared statically.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Task = Literal["classification", "regression"]


def _require_shape(shape: object) -> None:
    whole = isinstance(shape, (tuple, list)) and all(type(size) is int for size in shape)
    if shape is not None and not whole:
        raise TypeError(f"input_shape is a tuple of integers, not {shape!r}")


@dataclass(frozen=True)
class ModelContract:
    """What a model takes and gives.

    :param input_shape: sizes of one input sample, such as ``(1, 28, 28)``.
    :param input_dim: number of values in one input sample, for models that flatten; compared with the
        product of the dataset's shape where no ``input_shape`` is stated.
    :param num_outputs: width of the last output dimension: classes, or regression targets.
    :param in_channels: first size of an input sample, for models that take any height and width; stated in
        place of ``input_shape``.
    :param size_divisor: what divides every further size of an input sample, beside ``in_channels``.
    """

    input_shape: tuple[int, ...] | None = None
    input_dim: int | None = None
    num_outputs: int | None = None
    num_outputs_option: str = "num_classes"
    """The option that ``num_outputs`` comes from: a mismatch points at it."""
    input_option: str | None = None
    """The same for the input; None: the name of the field that is stated."""
    in_channels: int | None = None
    size_divisor: int | None = None
    size_divisor_option: str = "size_divisor"
    """The option that ``size_divisor`` comes from."""

    def __post_init__(self) -> None:
        _require_shape(self.input_shape)


@dataclass(frozen=True)
class DatasetContract:
    """What a dataset yields.

    :param input_shape: sizes of one input sample.
    :param task: the kind of its targets.
    :param num_outputs: number of classes, or width of a regression target (1 for a scalar).
    """

    input_shape: tuple[int, ...] | None = None
    task: Task | None = None
    num_outputs: int | None = None

    def __post_init__(self) -> None:
        _require_shape(self.input_shape)


@dataclass(frozen=True)
class LossContract:
    """What a loss needs.

    :param task: the kind of targets it takes; None takes any.
    """

    task: Task | None = None


@dataclass(frozen=True)
class ModeContract:
    """Which sections of a configuration a mode reads.

    :param required: sections without which it cannot run.
    :param optional: sections that it reads where they are given (or have a default).
    :param metrics: names of the metrics that it measures, without their phase, such as ``loss``; None if
        they depend on more than its options.
    :param roles: for a section that names several components by role, its roles, such as
        ``{"model": ("generator", "discriminator")}``; then the section is a mapping from role to component.

    Any other component section is an error, except those of kinds that serve every mode (callbacks).
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    metrics: tuple[str, ...] | None = None
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CallbackContract:
    """What a callback does to a run.

    :param observes: whether weights, what is evaluated, and when the run stops are the same without it. One that
        only observes may come, change and go when a run is resumed.
    """

    observes: bool = True


Contract = ModelContract | DatasetContract | LossContract | ModeContract | CallbackContract
