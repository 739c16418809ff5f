"""Parameters that are not trained, for good or until a step."""

from __future__ import annotations

from torch import nn

from trainlattice.contracts.options import OptionError
from trainlattice.training.callbacks import Callback
from trainlattice.training.groups import NORMS
from trainlattice.training.mode import Parts
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.options import FreezeOptions
from trainlattice_plugin_callbacks.parameters import parameters_of, require_matches


class Freeze(Callback):
    """They have no gradient, and the optimizer passes them over: neither weight decay nor momentum moves them."""

    def __init__(self, options: FreezeOptions, parts: Parts) -> None:
        self.until_step = options.until_step
        named = parameters_of(parts)
        require_matches("params", options.params, named)
        chosen = [held for held in named if any(held.matches(wanted) for wanted in options.params)]
        self.parameters = [held.parameter for held in chosen if held.parameter.requires_grad]
        mine = {id(parameter) for parameter in self.parameters}
        for role, update in parts.updates.items():
            groups = update.optimizer.param_groups
            if all(id(p) in mine or not p.requires_grad for group in groups for p in group["params"]):
                raise OptionError("params", f"nothing would be left for the {role} to train")
        owners = dict.fromkeys(held.owner for held in chosen) if options.freeze_statistics else {}
        self.layers: list[nn.Module] = [owner for owner in owners if isinstance(owner, NORMS)]
        self.frozen = False

    def on_run_start(self, trainer: Trainer) -> None:
        if self.until_step is None or trainer.state.global_step < self.until_step:
            self._freeze()

    def on_step_end(self, trainer: Trainer) -> None:
        if self.frozen and self.until_step is not None and trainer.state.global_step >= self.until_step:
            for parameter in self.parameters:
                parameter.requires_grad_(True)
            for layer in self.layers:
                layer.train()
            self.frozen = False

    def _freeze(self) -> None:
        self.layers = [layer for layer in self.layers if layer.training]
        for parameter in self.parameters:
            parameter.requires_grad_(False)
        for layer in self.layers:
            layer.eval()
        self.frozen = True
