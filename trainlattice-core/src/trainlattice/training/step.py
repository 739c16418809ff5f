"""Carries out one window: the phases of the mode, each from zero_grad to the optimizer's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainlattice.contracts.settings import TrainerSettings
from trainlattice.data.container import Container, move
from trainlattice.training.metrics import PhaseMetrics
from trainlattice.training.mode import Measured, Mode, Parts, Phase, Window, parameter_dtype
from trainlattice.training.precision import autocast
from trainlattice.training.update import Outcome, Update

Weighting = Literal["samples", "fixed"]


@dataclass(frozen=True)
class StepResult:
    """What became of one window.

    :param outcomes: of each phase.
    :param measured: by micro-batch, the mode's metrics.
    :param weights: of the micro-batches.
    :param samples: in the window.
    """

    outcomes: list[Outcome]
    measured: list[Measured]
    weights: list[float]
    samples: int

    @property
    def applied(self) -> bool:
        """Whether any phase changed a weight."""
        return "applied" in self.outcomes

    @property
    def skipped(self) -> list[Outcome]:
        """Why phases were left out. A window in which one was does not count in the means of its epoch."""
        return [outcome for outcome in self.outcomes if outcome != "applied"]


class Stepper:
    """The one step function of every mode.

    :param device: where micro-batches are brought to, each when its loss is asked for.
    :param dtype: of the model; see :func:`~trainlattice.data.container.move`.
    :param weighting: ``samples`` multiplies each micro-batch loss by its share n_i / N of the window's weight, so
        that accumulating k batches equals one batch k times as large, the ragged last window included; ``fixed``
        multiplies it by 1 / accumulate.
    :param keeps_containers: whether somebody looks at them after the step; else what is in them is let go as soon
        as it has been measured.
    :param metrics: those of training.
    :param guarded: modules whose buffers are put back after a phase that was skipped as not finite: its forward
        pass may have spoiled them (running statistics).
    """

    def __init__(
        self,
        mode: Mode,
        updates: Mapping[str, Update],
        autocast: AbstractContextManager[Any],
        device: torch.device,
        dtype: torch.dtype | None = None,
        *,
        accumulate: int = 1,
        weighting: Weighting = "samples",
        keeps_containers: bool = True,
        guarded: Sequence[nn.Module] = (),
        metrics: PhaseMetrics | None = None,
    ) -> None:
        self.mode = mode
        self.updates = updates
        self.autocast = autocast
        self.device = device
        self.dtype = dtype
        self.keeps_containers = keeps_containers
        self.guarded = guarded
        self.metrics = metrics
        self.fixed_share = 1.0 / accumulate if weighting == "fixed" else None

    @classmethod
    def of(
        cls,
        settings: TrainerSettings,
        mode: Mode,
        parts: Parts,
        device: torch.device,
        *,
        keeps_containers: bool,
        metrics: PhaseMetrics | None = None,
    ) -> Stepper:
        """As the section ``trainer`` says."""
        return cls(
            mode,
            parts.updates,
            autocast(settings.precision, device),
            device,
            parameter_dtype(parts),
            accumulate=settings.accumulate,
            weighting=settings.accumulate_weighting,
            keeps_containers=keeps_containers,
            guarded=parts.modules() if settings.nonfinite == "skip" else (),
            metrics=metrics,
        )

    def run(self, window: Window) -> StepResult:
        """One step of the run.

        :param window: containers as the loader made them.
        """
        weights = [self.mode.weight(container) for container in window]
        samples = sum(self.mode.samples(container) for container in window)
        for container, weight in zip(window, weights, strict=True):
            container["weight"] = weight
        shares = self._shares(weights)
        for update in self.updates.values():
            update.begin_window()
        outcomes: list[Outcome] = []
        measured: list[Measured] = []
        for phase in self.mode.phases(window):
            outcomes.append(self._phase(phase, window, shares, measured))
        if not measured:
            measured = [self._measure(container) for container in window]
        return StepResult(outcomes, measured, weights, samples)

    def _phase(
        self, phase: Phase, window: Window, shares: Sequence[float], measured: list[Measured]
    ) -> Outcome:
        update = self.updates[phase.update]
        update.zero_grad()
        before = _buffers(self.guarded)
        losses = []
        for container, share in zip(window, shares, strict=True):
            move(container, self.device, self.dtype)
            with self.autocast:
                loss = phase.loss(container)
            if share:  # a batch in which nothing counts has the mean 0 / 0, and no part in the window
                if share != 1.0 and (phase.averaged or self.fixed_share is not None):
                    loss = loss * share
                update.backward(loss)
                losses.append(loss.detach())
            if phase.last:
                measured.append(self._measure(container))
        outcome = update.apply(losses) if losses else "nothing counts"
        if outcome == "skipped as not finite":
            for module, name, buffer, value in before:
                buffer.copy_(value)
                module._buffers[name] = buffer  # a forward pass may have assigned another one
        return outcome

    def _measure(self, container: Container) -> Measured:
        measured = self.mode.measure(container)
        if self.metrics:
            self.metrics.update(container)
        if not self.keeps_containers:
            container.clear()
            return measured
        for key, value in container.items():  # nobody is to keep the graph alive
            if isinstance(value, Tensor) and value.requires_grad:
                container[key] = value.detach()
        return measured

    def _shares(self, weights: Sequence[float]) -> list[float]:
        """What each micro-batch loss is multiplied by; zero for one in which nothing counts."""
        if self.fixed_share is not None:
            return [self.fixed_share if weight else 0.0 for weight in weights]
        total = sum(weights)
        return [weight / total if weight else 0.0 for weight in weights]


def _buffers(modules: Sequence[nn.Module]) -> list[tuple[nn.Module, str, Tensor, Tensor]]:
    """Every buffer with its owner, its name and a copy of its value."""
    return [
        (owner, name, buffer, buffer.clone())
        for module in modules
        for owner in module.modules()
        for name, buffer in owner.named_buffers(recurse=False)
    ]
