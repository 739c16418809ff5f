"""Where the first value that is not finite came from: ``nan_report.json``."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trainlattice.checkpoint.durable import write_durably
from trainlattice.data.container import Container
from trainlattice.diagnostics.errors import NonFiniteError
from trainlattice.training.callbacks import Callback, PhaseName
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.files import run_directory
from trainlattice_plugin_callbacks.options import NaNReportOptions

FILE = "nan_report.json"
_NEVER = 1 << 62
_LOOKS = 1 << 24
"""More than there are looks at tensors in one window: a moment is window * _LOOKS + look."""

logger = logging.getLogger("trainlattice.callbacks.nan_report")


class _Window(NamedTuple):
    """Where a window of this process stands: so do those after it, one step and one window further each.

    :param batches: how many it has; the last one of an epoch may have fewer than the others.
    """

    number: int
    epoch: int
    windows: int
    step: int
    batches: int


class NaNReport(Callback):
    """Looks at what models take, at what each module returns and at each gradient, while training, and keeps on the
    device the moment at which each was first not finite: no step waits. The host reads them when the run ends.

    Of a model that is compiled only gradients are watched, with fp16 only modules: there infinite gradients are a
    matter of the scale.
    """

    batch_phases = ("train",)

    def __init__(self, options: NaNReportOptions) -> None:
        self.options = options
        self.places: list[dict[str, str]] = []
        self.handles: list[RemovableHandle] = []
        self.windows: list[_Window] = []
        self.number = self.look = self.batches = 0
        self.watching = True

    def on_run_start(self, trainer: Trainer) -> None:
        self.trainer = trainer
        losses = trainer.parts.loss_modules()
        for role, model in trainer.parts.models.items() if trainer.settings.compile is None else ():
            self._watch_modules(role, model)
        for role, loss in losses.items():
            place = self._place(what="output", role=role, module="", type=type(loss).__name__)
            self.handles.append(loss.register_forward_hook(partial(self._see_loss, place)))
        scaled = any(update.scaler is not None for update in trainer.parts.updates.values())
        for role, module in {**trainer.parts.models, **losses}.items() if not scaled else ():
            for name, parameter in module.named_parameters():
                if _may_be_trained(parameter):
                    place = self._place(what="gradient", role=role, parameter=name)
                    hook = partial(self._see_gradient, place)
                    self.handles.append(_hooked(parameter, hook))
        self.first = torch.full(
            (len(self.places),), _NEVER, dtype=torch.int64, device=trainer.strategy.device
        )

    def on_phase_start(self, trainer: Trainer, phase: PhaseName) -> None:
        self.watching = phase == "train"

    def on_phase_end(self, trainer: Trainer, phase: PhaseName) -> None:
        self.watching = phase != "train"

    def on_batch_start(self, trainer: Trainer, phase: PhaseName, container: Container) -> None:
        """All of a window come before the first of them goes through."""
        self.batches += 1

    def on_step_end(self, trainer: Trainer) -> None:
        self.number, self.look, self.batches = self.number + 1, 0, 0

    def finalize(self, trainer: Trainer, error: BaseException | None) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        tolerated = error is None and trainer.settings.nonfinite != "stop"
        if self.places and (tolerated or isinstance(error, NonFiniteError)):
            found = self._found()
            if found or error is not None:
                self._report(trainer, found, error)

    def _watch_modules(self, role: str, root: nn.Module) -> None:
        for name, module in root.named_modules():
            if module is root:
                place = self._place(what="input", role=role, module=name, type=type(module).__name__)
                hook = partial(self._see_input, place)
                self.handles.append(module.register_forward_pre_hook(hook, with_kwargs=True))
            place = self._place(what="output", role=role, module=name, type=type(module).__name__)
            self.handles.append(module.register_forward_hook(partial(self._see_output, place)))

    def _place(self, **place: str) -> int:
        self.places.append(place)
        return len(self.places) - 1

    def _see_input(self, place: int, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._see(place, (args, kwargs))

    def _see_output(self, place: int, module: nn.Module, args: Any, output: Any) -> None:
        self._see(place, output)

    def _see_loss(self, place: int, module: nn.Module, args: Any, loss: Any) -> None:
        """Once it goes backward: that of a batch in which nothing counts is NaN, and has no part in the step."""
        if self.watching and isinstance(loss, Tensor) and loss.requires_grad:
            value = loss.detach()
            loss.register_hook(lambda gradient: self._see(place, value))

    def _see_gradient(self, place: int, gradient: Tensor) -> None:
        self._see(place, gradient)

    @torch.no_grad()
    def _see(self, place: int, value: Any) -> None:
        if not self.watching:
            return
        if not self.look:
            self._note_window()
        moment = self.number * _LOOKS + self.look
        self.look += 1
        first = self.first[place]
        for tensor in _floating(value):
            whole = tensor.isfinite().all().to(first.device, non_blocking=True)
            first.copy_(torch.where(whole, first, first.clamp(max=moment)))

    def _note_window(self) -> None:
        """One entry for all windows that follow one another: the list stays short."""
        trainer = self.trainer
        state, windows = trainer.state, trainer.progress.windows
        here = _Window(self.number, state.epoch, windows, state.global_step, self.batches)
        if not self.windows or _later(self.windows[-1], self.number) != here:
            self.windows.append(here)

    def _found(self) -> list[tuple[int, dict[str, str]]]:
        """The places of the first window that had any, in the order in which they were looked at."""
        hits = sorted((moment, place) for place, moment in enumerate(self.first.tolist()) if moment < _NEVER)
        return [(m // _LOOKS, self.places[p]) for m, p in hits if m // _LOOKS == hits[0][0] // _LOOKS]

    def _report(
        self, trainer: Trainer, found: Sequence[tuple[int, dict[str, str]]], error: BaseException | None
    ) -> None:
        report: dict[str, Any] = {"error": str(error) if error is not None else None, "first": None}
        text = "nothing that nan_report watches was not finite"
        if found:
            number, first = found[0]
            window = _later(max(w for w in self.windows if w.number <= number), number)
            before = window.windows * trainer.settings.accumulate
            batches = [before + 1, before + window.batches]
            report |= {"epoch": window.epoch + 1, "step": window.step + 1, "batches": batches, "first": first}
            report["then"] = [place for _, place in found[1 : 1 + self.options.most]]
            report["more"] = max(0, len(found) - 1 - self.options.most)
            where = f"batch {batches[0]}" if window.batches == 1 else f"batches {batches[0]} to {batches[1]}"
            text = (
                f"{_said(first)} was the first that was not finite: epoch {window.epoch + 1}, "
                f"step {window.step + 1}, {where}"
            )
        write_durably(run_directory(trainer) / FILE, json.dumps(report, indent=2) + "\n")
        logger.warning("%s", text)


def _later(window: _Window, number: int) -> _Window:
    passed = number - window.number
    return window._replace(number=number, windows=window.windows + passed, step=window.step + passed)


def _may_be_trained(parameter: nn.Parameter) -> bool:
    """Now, or once somebody thaws it."""
    may = parameter.is_floating_point() or parameter.is_complex()
    return may and not parameter.is_inference()


def _hooked(parameter: nn.Parameter, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """A hook that sees gradients also from when a frozen parameter is thawed on."""
    trained = parameter.requires_grad
    handle = parameter.requires_grad_(True).register_hook(hook)
    parameter.requires_grad_(trained)
    return handle


def _said(place: Mapping[str, str]) -> str:
    if place["what"] == "gradient":
        return f"the gradient of {place['parameter']} of the {place['role']}"
    name = (
        f"{place['module']} ({place['type']}) of the {place['role']}"
        if place["module"]
        else f"the {place['role']}"
    )
    return f"the {place['what']} of {name}"


def _floating(value: Any) -> Iterator[Tensor]:
    """Tensors in nested containers that can hold what is not finite."""
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value.detach().coalesce().values() if value.is_sparse else value.detach()
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _floating(held)
    elif isinstance(value, (list, tuple)):
        for held in value:
            yield from _floating(held)
