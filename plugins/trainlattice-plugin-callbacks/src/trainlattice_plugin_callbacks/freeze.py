"""Parameters that are not trained, for good or until a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import MutableMapping
from dataclasses import dataclass, field

from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from trainlattice.contracts.options import OptionError
from trainlattice.training.callbacks import Callback
from trainlattice.training.groups import NORMS
from trainlattice.training.mode import Parts
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.options import FreezeOptions
from trainlattice_plugin_callbacks.parameters import parameters_of, require_matches


@dataclass
class _Held:
    """What all ``freeze`` of one run hold together.

    :param chosen: ids of the parameters that they freeze at some time.
    :param by: by id of a parameter or layer, how many of them hold it now.
    """

    chosen: set[int] = field(default_factory=set)
    by: Counter[int] = field(default_factory=Counter)

    def take(self, held: nn.Parameter | nn.Module) -> bool:
        """Whether this is the first hold of it."""
        self.by[id(held)] += 1
        return self.by[id(held)] == 1

    def let_go(self, held: nn.Parameter | nn.Module) -> bool:
        """Whether this was the last hold of it."""
        self.by[id(held)] -= 1
        return not self.by[id(held)]


_of_runs: MutableMapping[Parts, _Held] = WeakIdKeyDictionary()


class Freeze(Callback):
    """They have no gradient, and the optimizer passes them over: neither weight decay nor momentum moves them. What
    several ``freeze`` of a run hold is trained when the last lets go of it."""

    def __init__(self, options: FreezeOptions, parts: Parts) -> None:
        self.until_step = options.until_step
        named = parameters_of(parts)
        require_matches("params", options.params, named)
        chosen = [held for held in named if any(held.matches(wanted) for wanted in options.params)]
        self.parameters = [held.parameter for held in chosen if held.parameter.requires_grad]
        self.held = _of_runs.setdefault(parts, _Held())
        chosen_by_all = self.held.chosen | {id(parameter) for parameter in self.parameters}
        for role, update in parts.updates.items():
            groups = update.optimizer.param_groups
            if all(id(p) in chosen_by_all or not p.requires_grad for g in groups for p in g["params"]):
                others = ", with what others freeze" if self.held.chosen else ""
                raise OptionError("params", f"nothing would be left for the {role} to train{others}")
        self.held.chosen = chosen_by_all
        owners = dict.fromkeys(held.owner for held in chosen) if options.freeze_statistics else {}
        self.layers: list[nn.Module] = [owner for owner in owners if isinstance(owner, NORMS)]
        self.frozen = False

    def on_run_start(self, trainer: Trainer) -> None:
        if self.until_step is None or trainer.state.global_step < self.until_step:
            self._freeze()

    def on_step_end(self, trainer: Trainer) -> None:
        if self.frozen and self.until_step is not None and trainer.state.global_step >= self.until_step:
            for parameter in self.parameters:
                if self.held.let_go(parameter):
                    parameter.requires_grad_(True)
            for layer in self.layers:
                if self.held.let_go(layer):
                    layer.train()
            self.frozen = False

    def _freeze(self) -> None:
        self.layers = [layer for layer in self.layers if layer.training or self.held.by[id(layer)]]
        for parameter in self.parameters:
            if self.held.take(parameter):
                parameter.requires_grad_(False)
        for layer in self.layers:
            if self.held.take(layer):
                layer.eval()
        self.frozen = True
