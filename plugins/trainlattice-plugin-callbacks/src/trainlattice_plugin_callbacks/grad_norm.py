"""Norms of gradients, before they are clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainlattice.training.callbacks import Callback, RecordName
from trainlattice.training.mode import Parts
from trainlattice.training.trainer import Trainer
from trainlattice_plugin_callbacks.options import GradNormOptions
from trainlattice_plugin_callbacks.parameters import parameters_of, require_matches


class GradNorm(Callback):
    """``grad_norm/<role>`` over all parameters of an optimizer and ``grad_norm/<role>/<part>`` over some of them.
    Nothing waits for the device."""

    def __init__(self, options: GradNormOptions, parts: Parts) -> None:
        self.norm_type = math.inf if options.norm_type == "inf" else float(options.norm_type)
        named = parameters_of(parts)
        require_matches("patterns", options.patterns, named)
        self.parts_of: dict[int, list[str]] = {}
        for held in named:
            found = [pattern for pattern in options.patterns if held.matches(pattern)]
            if options.module_depth is not None:
                path = held.name.split(".")[:-1][: options.module_depth]
                found.append(".".join(path) or held.name)
            self.parts_of[id(held.parameter)] = list(dict.fromkeys(found))
        self.norms: dict[str, Tensor] = {}

    def on_gradients(self, trainer: Trainer, role: str) -> None:
        norms: dict[str, list[Tensor]] = {f"grad_norm/{role}": []}
        for group in trainer.parts.updates[role].optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                norm = self._norm(parameter.grad)
                norms[f"grad_norm/{role}"].append(norm)
                for part in self.parts_of.get(id(parameter), ()):
                    norms.setdefault(f"grad_norm/{role}/{part}", []).append(norm)
        self.norms |= {name: self._total(found) for name, found in norms.items() if found}

    def measure(self, trainer: Trainer, record: RecordName) -> Mapping[str, float | Tensor]:
        if record != "batch":
            return {}
        norms, self.norms = self.norms, {}
        return norms

    def _norm(self, gradient: Tensor) -> Tensor:
        """In float32 at least: the squares of half precision overflow at 256."""
        values = gradient.coalesce().values() if gradient.is_sparse else gradient
        dtype = torch.float32 if values.dtype in (torch.float16, torch.bfloat16) else None
        return torch.linalg.vector_norm(values.detach(), self.norm_type, dtype=dtype)

    def _total(self, norms: Sequence[Tensor]) -> Tensor:
        """The norm of all values is the norm of the norms."""
        device, dtype = norms[0].device, norms[0].dtype
        return torch.linalg.vector_norm(
            torch.stack([norm.to(device, dtype) for norm in norms]), self.norm_type
        )
