"""A mode: how the micro-batches of a window become updates. A component of kind ``mode`` builds one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainlattice.contracts.records import DatasetContract
from trainlattice.data.container import Container, batch_size
from trainlattice.training.losses import LossTerms
from trainlattice.training.postprocess import PostProcessing
from trainlattice.training.update import Update

Window = Sequence[Container]
"""The containers of one step of the run; one for each micro-batch. Each is brought to the device when a phase asks
for its loss."""


Measured = dict[str, Any]
"""By name: a scalar tensor, or a pair of one and its weight in means."""


@dataclass(frozen=True)
class Phase:
    """One update within a window: which optimizer, and the loss of each micro-batch.

    :param update: role of the optimizer.
    :param loss: runs the forward pass of one micro-batch, leaves what it computed in the container and
        returns the loss to go backward from.
    :param averaged: whether the loss is a mean over samples, so that micro-batches are weighted by their
        share of the window; a sum is not.
    :param last: whether no later phase of the window needs what this one left in the containers. Each micro-batch
        is then measured as soon as its loss went backward, and its predictions need no memory any longer.
    """

    update: str
    loss: Callable[[Container], Tensor]
    averaged: bool = True
    last: bool = False


@dataclass(frozen=True)
class Parts:
    """What the configuration of a run was built into; a mode takes what it needs.

    :param models: by role; a run with one model has the role ``model``.
    :param updates: by role; a run with one optimizer has the role ``optimizer``.
    :param loss: the loss component or the terms of one, or None for a mode without the section.
    :param data: what is known about the samples.
    :param others: by section, what the components of kinds that plugins brought were built into.
    :param inputs: by role of a model, the key of the container for each argument of its forward pass.
    :param postprocess: what makes further values of a batch that went through the model.
    :param weighting: of the micro-batches of a window, see :class:`~trainlattice.training.step.Stepper`.
    """

    models: Mapping[str, nn.Module]
    updates: Mapping[str, Update]
    loss: Callable[..., Tensor] | LossTerms | None
    data: DatasetContract = field(default_factory=DatasetContract)
    others: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    weighting: Literal["samples", "fixed"] = "samples"
    postprocess: PostProcessing = field(default_factory=PostProcessing)

    @property
    def terms(self) -> LossTerms | None:
        """The loss as terms, also if it is one."""
        if self.loss is None or isinstance(self.loss, LossTerms):
            return self.loss
        return LossTerms.of(self.loss)

    def loss_modules(self) -> dict[str, nn.Module]:
        """The losses that are modules, by the name of their state."""
        return self.terms.modules() if self.terms is not None else {}

    def stateful(self) -> dict[str, Any]:
        """Components of other kinds and post-processors that have a state, by its name."""
        held: dict[str, Any] = {}
        for section, built in self.others.items():
            if hasattr(built, "state_dict"):
                held[f"other/{section}"] = built
            elif isinstance(built, Mapping):
                held |= {f"other/{section}/{role}": part for role, part in built.items()}
            elif isinstance(built, list):
                held |= {f"other/{section}/{index}": part for index, part in enumerate(built)}
        held = {name: part for name, part in held.items() if hasattr(part, "state_dict")}
        return held | self.postprocess.stateful()

    def modules(self) -> list[nn.Module]:
        """The models, and the losses and post-processors that are modules."""
        return [*self.models.values(), *self.loss_modules().values(), *self.postprocess.modules()]


class Mode:
    """Base class of modes. The Trainer owns everything around the window; a mode owns what is in it."""

    def phases(self, window: Window) -> Iterator[Phase]:
        """The updates of one window, in order. Each is carried out before the next is asked for, so a later
        phase sees the weights that an earlier one changed."""
        raise NotImplementedError

    def evaluate(self, container: Container) -> None:
        """The forward pass of one validation batch, without gradients; leaves its results in the container."""
        raise NotImplementedError

    def check(self, container: Container) -> None:
        """Runs one small batch before the run begins, to see that the parts fit together. The tensors may be
        on the meta device, where they have shapes and no values. An exception says what does not fit."""
        self.evaluate(container)

    def measure(self, container: Container) -> Measured:
        """Metrics of one batch that went through ``phases`` or ``evaluate``: scalar means over what counts in it,
        or pairs of such a mean and a weight of its own."""
        raise NotImplementedError

    def summarise(self, means: dict[str, float], step: int) -> dict[str, float]:
        """The metrics of a validation from the means over its batches: for what is no mean itself.

        :param step: optimizer steps that were taken.
        """
        return means

    def weight(self, container: Container) -> float:
        """How much this batch counts in its window, in means over an epoch and a validation: its samples, or what
        the loss counts (supervised tokens). Asked while the batch is as the loader made it, on the host, so that
        no step waits for the device. A batch of weight zero is not trained on and has no part in a mean."""
        return self.samples(container)

    def samples(self, container: Container) -> int:
        """Number of samples in this batch; asked as :meth:`weight` is."""
        return batch_size(container)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        return None


def parameter_dtype(parts: Parts) -> torch.dtype:
    """Of the models' parameters: what float64 batches are brought to."""
    for model in parts.models.values():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.get_default_dtype()
