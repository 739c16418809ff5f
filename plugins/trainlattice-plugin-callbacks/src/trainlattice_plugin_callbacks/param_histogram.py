"""How the values of parameters and gradients are distributed: ``histograms.jsonl`` in the run directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from trainlattice.training.callbacks import Callback
from trainlattice.training.groups import NamedParameter
from trainlattice.training.mode import Parts
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.files import run_directory
from trainlattice_plugin_callbacks.options import ParamHistogramOptions
from trainlattice_plugin_callbacks.parameters import parameters_of, require_matches

FILE = "histograms.jsonl"


def build(options: ParamHistogramOptions, parts: Parts) -> Callback:
    """Gradients are looked at only by a callback that wants them."""
    return (WeightAndGradientHistograms if options.gradients else WeightHistograms)(options, parts)


class WeightHistograms(Callback):
    """A line for each parameter, after the epochs and steps that the options name. Copies them to the host."""

    def __init__(self, options: ParamHistogramOptions, parts: Parts) -> None:
        self.options = options
        named = parameters_of(parts)
        require_matches("params", options.params, named)
        self.named = [held for held in named if any(held.matches(wanted) for wanted in options.params)]
        self.step = -1

    def on_run_start(self, trainer: Trainer) -> None:
        self.step = trainer.state.global_step

    def on_step_end(self, trainer: Trainer) -> None:
        every, step = self.options.every_steps, trainer.state.global_step
        taken, self.step = step != self.step, step
        if every is not None and taken and step % every == 0:
            self._write(trainer, self._weights())

    def on_epoch_end(self, trainer: Trainer, metrics: Mapping[str, float]) -> None:
        every = self.options.every_epochs
        if every is not None and trainer.state.epoch % every == 0:
            self._write(trainer, self._weights())

    def _weights(self) -> Iterable[dict[str, Any]]:
        return (self._line("weight", held, held.parameter) for held in self.named)

    def _line(self, what: str, held: NamedParameter, values: Tensor) -> dict[str, Any]:
        return {"of": what, "name": held.name, **histogram(values, self.options.bins)}

    def _write(self, trainer: Trainer, lines: Iterable[Mapping[str, Any]]) -> None:
        place = {"epoch": trainer.epoch_number, "step": trainer.state.global_step}
        with open(run_directory(trainer) / FILE, "a", encoding="utf-8") as file:
            file.writelines(json.dumps({**place, **line}, allow_nan=False) + "\n" for line in lines)


class WeightAndGradientHistograms(WeightHistograms):
    sees_every_gradient = True

    def __init__(self, options: ParamHistogramOptions, parts: Parts) -> None:
        super().__init__(options, parts)
        self.gradients: dict[str, dict[str, Any]] = {}

    def on_gradients(self, trainer: Trainer, role: str) -> None:
        """Of the step that is about to be taken; a step that is skipped leaves no line."""
        every = self.options.every_steps
        if every is None or (trainer.state.global_step + 1) % every:
            return
        mine = {
            id(p) for group in trainer.parts.updates[role].optimizer.param_groups for p in group["params"]
        }
        for held in self.named:
            gradient = held.parameter.grad
            if gradient is not None and id(held.parameter) in mine:
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                self.gradients[held.name] = self._line("gradient", held, dense)

    def on_step_end(self, trainer: Trainer) -> None:
        gradients, self.gradients = self.gradients, {}
        if gradients and trainer.state.global_step != self.step:
            self._write(trainer, gradients.values())
        super().on_step_end(trainer)


def histogram(values: Tensor, bins: int) -> dict[str, Any]:
    """Of the values that are finite: smallest, largest, mean, standard deviation (of these, no estimate), and
    how many lie in each of ``bins`` intervals of equal width from ``edges[0]`` to ``edges[1]``. The last
    interval holds its upper end. Where all values are one, the intervals reach half to either side of it."""
    flat = values.detach().to("cpu", torch.float64).flatten()
    kept = flat[flat.isfinite()]
    found: dict[str, Any] = {"count": len(kept), "nonfinite": len(flat) - len(kept)}
    if not len(kept):
        return {
            **found,
            "min": None,
            "max": None,
            "mean": None,
            "std": None,
            "edges": None,
            "bins": [0] * bins,
        }
    low, high = kept.min().item(), kept.max().item()
    first, last = (low, high) if low < high else (low - 0.5, high + 0.5)
    counts, _ = torch.histogram(kept, bins, range=(first, last))
    return {
        **found,
        "min": low,
        "max": high,
        "mean": kept.mean().item(),
        "std": kept.std(correction=0).item(),
        "edges": [first, last],
        "bins": [int(count) for count in counts.tolist()],
    }
