"""What is minimised: one loss, or a weighted sum of several, each of which reads the keys that it needs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from trainlattice.contracts.settings import LossSettings, LossWeightSettings
from trainlattice.data.container import Container, get
from trainlattice.training.targets import TargetError, class_target, explain_target


class LossTerm:
    """A loss component and what it reads.

    It is called as ``loss(pred, target, **context)`` and returns a scalar. Of its attributes, all optional,
    ``reduction`` says whether that is a mean (the default) or a ``sum``; ``num_terms(target)`` of how many terms,
    so that means over several batches are right: by default the samples, with ``ignore_index`` the other targets,
    for torch's own losses with class weights their sum. It may name arguments of the context too, such as a mask.
    ``task`` says whether the target is a class, ``ignore_index`` which class does not count, ``broadcasts`` that
    predictions and targets of different shapes are meant.

    :param name: under which it is measured.
    :param path: where the configuration has it.
    """

    def __init__(
        self,
        name: str,
        loss: Callable[..., Tensor],
        settings: LossSettings | None = None,
        path: tuple[str | int, ...] = ("loss",),
    ) -> None:
        settings = settings or LossSettings()
        self.path = path
        self.name = name
        self.loss = loss
        self.pred_key, self.target_key = settings.pred_key, settings.target_key
        self.context = dict(settings.context)
        self.weight = settings.weight
        self.averaged = getattr(loss, "reduction", "mean") != "sum"
        self.num_terms = getattr(loss, "num_terms", None)
        self.ignore_index = getattr(loss, "ignore_index", None)
        self.classifies = getattr(loss, "task", None) == "classification"
        self.broadcasts = getattr(loss, "broadcasts", False)
        self._asks = f"the loss {name!r}"
        self._counts_by = [key for key in self.context if key in _parameters(self.num_terms)]
        # Where every batch has as many targets as samples, both weigh alike.
        self.counts_targets = self.num_terms is not None or self.ignore_index is not None

    def __call__(self, container: Container) -> Tensor:
        pred = get(container, self.pred_key, self._asks)
        target = get(container, self.target_key, self._asks)
        context = {name: get(container, key, self._asks) for name, key in self.context.items()}
        try:
            return self.loss(pred, target, **context)
        except (IndexError, RuntimeError, ValueError) as error:
            explanation = explain_target(pred, target, self.ignore_index) if self.classifies else None
            if explanation is None:
                raise
            if self.target_key != "target":
                explanation = f"{self._asks} of {self.pred_key} and {self.target_key}: {explanation}"
            raise TargetError(explanation) from error

    def count(self, container: Container, samples: Callable[[Container], float]) -> float:
        """Terms that it counts in a batch on the host; samples where it does not say, or where its target is made
        later, by the model or a post-processor. Brings classes to int64."""
        target = container.get(self.target_key)
        if self.classifies and isinstance(target, Tensor) and target.dtype != torch.int64:
            target = container[self.target_key] = class_target(target)
        if self.num_terms is not None and target is not None:
            more = {name: container.get(self.context[name]) for name in self._counts_by}
            return _number(self.num_terms(target, **more))
        if self.ignore_index is None or not isinstance(target, Tensor):
            return samples(container)
        counted = target != self.ignore_index
        weights = self.loss.weight if isinstance(self.loss, (nn.CrossEntropyLoss, nn.NLLLoss)) else None
        if weights is not None and target.dtype == torch.int64:
            return _number(weights.detach().cpu()[target[counted]].sum())
        return _number(counted.sum())

    def weight_at(self, step: int) -> float:
        """Of this term in the sum."""
        return self.weight if isinstance(self.weight, float) else scheduled(self.weight, step)

    def check(self, container: Container) -> Tensor:
        """Its value for a batch that went through the model; raises for what cannot be a loss."""
        pred, target = get(container, self.pred_key, self._asks), get(container, self.target_key, self._asks)
        value = self(container)
        if not isinstance(value, Tensor) or value.dim() != 0:
            found = (
                f"shape {list(value.shape)}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
            )
            raise TypeError(f"{self._asks} returned a value of {found}, expected a scalar tensor")
        if not self.classifies and not self.broadcasts and _would_broadcast(pred, target):
            raise ValueError(
                f"predictions have the shape {list(pred.shape)} and targets {list(target.shape)}: the loss would "
                "compare each with several others; a loss that means to has broadcasts = True"
            )
        return value


class LossTerms:
    """The terms of a loss, in the order of the configuration."""

    def __init__(self, terms: Sequence[LossTerm]) -> None:
        self.terms = tuple(terms)

    @classmethod
    def of(cls, loss: Callable[..., Tensor]) -> LossTerms:
        """A single loss with the default keys."""
        return cls([LossTerm(type(loss).__name__, loss)])

    def prepare(self, prepare: Callable[[nn.Module], nn.Module]) -> None:
        """Brings those that are modules to where the run computes."""
        for term in self.terms:
            if isinstance(term.loss, nn.Module):
                term.loss = prepare(term.loss)

    def modules(self) -> dict[str, nn.Module]:
        """Of those that are modules, by the name of their state."""
        alone = len(self.terms) == 1
        return {
            "loss" if alone else f"loss/{term.name}": term.loss
            for term in self.terms
            if isinstance(term.loss, nn.Module)
        }


def scheduled(weight: LossWeightSettings, step: int) -> float:
    """From ``start`` to ``end`` in ``steps`` optimizer steps after ``begin``; constant before and afterwards."""
    share = min(max((step - weight.begin) / weight.steps, 0.0), 1.0)
    if weight.schedule == "cosine":
        share = (1.0 - math.cos(math.pi * share)) / 2.0
    return weight.start + (weight.end - weight.start) * share


def auxiliary_losses(models: Mapping[str, nn.Module]) -> list[tuple[str, Callable[[], Tensor]]]:
    """``auxiliary_loss()`` of every submodule that has one, by the submodule's name: a scalar that belongs to the
    last forward pass, a mean over its samples (commitment of a codebook, balance of experts)."""
    found: list[tuple[str, Callable[[], Tensor]]] = []
    for role, model in models.items():
        for name, module in model.named_modules():
            if callable(getattr(type(module), "auxiliary_loss", None)):
                found.append((name or role, module.auxiliary_loss))
    return found


def _parameters(function: Callable[..., Any] | None) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters) if function is not None else frozenset()
    except (TypeError, ValueError):  # of C, without a signature that can be read
        return frozenset()


def _number(value: Any) -> float:
    """What a loss counts, from whatever it counts in; the probe has seen that it is a number."""
    counted: float = value.item() if getattr(value, "ndim", None) == 0 else value  # of torch or NumPy
    return counted


def _would_broadcast(pred: Any, target: Any) -> bool:
    if not isinstance(pred, Tensor) or not isinstance(target, Tensor) or pred.shape == target.shape:
        return False
    try:
        torch.broadcast_shapes(pred.shape, target.shape)  # type: ignore[no-untyped-call]
    except RuntimeError:  # the loss will say so itself
        return False
    return True
