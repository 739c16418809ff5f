"""Takes the state of a Trainer into a checkpoint and puts it back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainlattice.checkpoint.background import host_copy
from trainlattice.checkpoint.capture import Stateful, capture, restore
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.rng import capture_rng, restore_rng
from trainlattice.checkpoint.store import CheckpointStore
from trainlattice.data.order import ORDER_VERSION
from trainlattice.diagnostics.errors import CheckpointError
from trainlattice.training.callbacks import CallbackList
from trainlattice.training.nonfinite import all_finite
from trainlattice.training.validation import keeping_rng

if TYPE_CHECKING:
    from trainlattice.training.mode import Mode, Parts
    from trainlattice.training.trainer import Trainer


@dataclass(frozen=True)
class Boundary:
    """What the end of an epoch and a validation may change of the state between two steps: as it was before. A run
    that is saved meanwhile does them again when it is resumed."""

    rng: dict[str, Any]
    states: dict[str, Any]
    """Of all but models, losses and updates."""
    buffers: dict[str, dict[str, Any]]
    """Of models and losses: their weights a validation leaves alone."""

    @classmethod
    def here(cls, trainer: Trainer) -> Boundary:
        with keeping_rng() as rng:
            states = capture(_beside(trainer.parts, trainer.mode, trainer.callbacks))
        buffers = {
            name: dict(module.named_buffers(remove_duplicate=False))
            for name, module in _states_of_modules(trainer.parts)
        }
        return cls(rng, host_copy(states), host_copy(buffers))

    def put_into(self, states: dict[str, Any]) -> dict[str, Any]:
        """Captured states, with what they were between the two steps."""
        for name, buffers in self.buffers.items():
            kept = {key: value for key, value in buffers.items() if key in states[name]}
            states[name].update(kept)  # in place: a module's state carries versions besides
        return {**states, **self.states}


@dataclass(frozen=True)
class Checkpointer:
    """Saves into the store of a run, with what identifies the run.

    :param config: the resolved configuration as plain data.
    :param components: provenance of every component.
    :param budget: total optimizer steps that the schedule was made for.
    """

    store: CheckpointStore
    config: dict[str, Any]
    components: list[dict[str, Any]]
    budget: int | None

    def not_finite(self, trainer: Trainer) -> str | None:
        """The first weight, buffer or optimizer state that is not finite, or None. Reads every tensor.

        A buffer may hold infinities (a mask of attention does): there only NaN counts.
        """
        for role, module in _modules(trainer.parts).items():
            for name, parameter in module.named_parameters():
                if not all_finite(parameter.detach()):
                    return f"the weight {name} of the {role}"
            for name, buffer in module.named_buffers():
                if bool(torch.isnan(buffer).any()):
                    return f"the buffer {name} of the {role}"
        for role, update in trainer.parts.updates.items():
            if not all_finite(update.optimizer.state_dict()):
                return f"the state of the {role}"
        return None

    def require_storable(self, trainer: Trainer) -> None:
        """Raises CheckpointWriteError for what a callback, the mode or another component would save and nobody
        could load."""
        for name, callback in trainer.callbacks.named:
            self.store.require_storable(callback.state_dict(), f"the state of the callback {name!r}")
        for (
            role,
            update,
        ) in trainer.parts.updates.items():  # the tensors of an optimizer's state are torch's own
            held = {**update.state_dict(), "optimizer": update.optimizer.state_dict()["param_groups"]}
            self.store.require_storable(held, f"the state of the {role}, with its schedule,")
        for role, model in trainer.parts.models.items():
            extra = {k: v for k, v in model.state_dict().items() if not isinstance(v, torch.Tensor)}
            self.store.require_storable(extra, f"the extra state of the {role}")
        losses = trainer.parts.loss_modules()
        for name, held in {**losses, **trainer.parts.stateful(), "mode": trainer.mode}.items():
            self.store.require_storable(held.state_dict(), f"the state of {name}")

    def checkpoint(
        self, trainer: Trainer, boundary: Boundary | None = None, *, kind: str = "resume"
    ) -> Checkpoint:
        """The state as it is now; its tensors are those of the Trainer.

        :param boundary: what is not to be taken as it is now, but as it was between two steps.
        """
        rng = boundary.rng if boundary is not None else capture_rng()  # before a state_dict may draw
        states = capture(_stateful(trainer.parts, trainer.mode, trainer.callbacks))
        if boundary is not None:
            states = boundary.put_into(states)
        return Checkpoint(
            states={
                **states,
                "progress": trainer.progress.state_dict(),
                "data": trainer.train.state_dict(),
                "metrics": trainer.metrics["train"].state_dict(),
            },
            trainer=trainer.state.state_dict(),
            rng=rng,
            config=self.config,
            order=ORDER_VERSION,
            budget=self.budget,
            components=self.components,
            kind=kind,
        )

    def write(self, checkpoint: Checkpoint, names: Sequence[str]) -> list[Path]:
        """Writes a checkpoint under each of the names."""
        return self.store.save(checkpoint, names)

    def remove(self, names: Sequence[str]) -> None:
        """Files that retention no longer keeps."""
        self.store.remove(names)


def restore_objects(
    parts: Parts, mode: Mode, callbacks: CallbackList, checkpoint: Checkpoint, name: str
) -> None:
    """Puts a checkpoint's state into objects that were built from a compatible configuration.

    :raises CheckpointError: if the state does not fit.
    """
    if checkpoint.order != ORDER_VERSION:
        raise CheckpointError(
            f"{name} was written with version {checkpoint.order} of the sample order, and this version of "
            f"trainlattice-core has {ORDER_VERSION}: the same samples cannot be drawn again"
        )
    states = dict(checkpoint.states)
    states.pop("data", None)
    states.pop("metrics", None)
    if states.pop("progress", None) is None:  # these are the Trainer's: restore_progress takes them
        raise CheckpointError(f"{name} does not fit this run: it holds no progress")
    _restore(_stateful(parts, mode, callbacks), states, name)


def restore_progress(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Puts a Trainer where the checkpoint was taken, and every random state with it."""
    trainer.state.load_state_dict(checkpoint.trainer)
    trainer.progress.load_state_dict(checkpoint.states["progress"], trainer.strategy.device)
    trainer.train.load_state_dict(checkpoint.states.get("data", {}))
    trainer.metrics["train"].load_state_dict(checkpoint.states.get("metrics", {}))
    restore_rng(checkpoint.rng)


def restore_models(parts: Parts, mode: Mode, checkpoint: Checkpoint, name: str) -> None:
    """Puts back what an evaluation needs: models, a loss that learned, the mode, components of other kinds.

    :raises CheckpointError: if they do not fit.
    """
    needed = {
        key: held
        for key, held in _stateful(parts, mode, CallbackList([])).items()
        if key != "callbacks" and not key.startswith("update/")
    }
    _restore(needed, {key: checkpoint.states.get(key) for key in needed}, name)


def _restore(objects: dict[str, Stateful], states: dict[str, Any], name: str) -> None:
    try:
        restore(objects, states)
    # What a state_dict of another shape raises depends on whose load_state_dict it is given to.
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError) as error:
        text = error.args[0] if isinstance(error, KeyError) and error.args else error
        raise CheckpointError(f"{name} does not fit this run: {text}") from error


def _modules(parts: Parts) -> dict[str, nn.Module]:
    return {**parts.models, **parts.loss_modules()}


def _stateful(parts: Parts, mode: Mode, callbacks: CallbackList) -> dict[str, Stateful]:
    updates = {f"update/{role}": update for role, update in parts.updates.items()}
    return {**dict(_states_of_modules(parts)), **updates, **_beside(parts, mode, callbacks)}


def _states_of_modules(parts: Parts) -> list[tuple[str, nn.Module]]:
    """Models and losses by the name of their state."""
    models = [(f"model/{role}", model) for role, model in parts.models.items()]
    return [*models, *parts.loss_modules().items()]


def _beside(parts: Parts, mode: Mode, callbacks: CallbackList) -> dict[str, Stateful]:
    """What has a state besides models, losses and updates."""
    return {**parts.stateful(), "mode": mode, "callbacks": callbacks}
