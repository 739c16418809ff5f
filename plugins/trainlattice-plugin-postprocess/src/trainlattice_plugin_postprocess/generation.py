"""What a model that generates makes of an input."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainlattice.contracts.options import OptionError
from trainlattice_plugin_postprocess.options import GenerateOptions


class Generate:
    """Calls the model's ``generate`` with its inputs and arguments, without gradients."""

    def __init__(self, options: GenerateOptions, models: dict[str, nn.Module]) -> None:
        model = models.get("model") or next(iter(models.values()))
        if not callable(getattr(model, options.attribute, None)):
            raise OptionError(
                "attribute", f"the model, a {type(model).__name__}, has no method {options.attribute!r}"
            )
        self.method, self.arguments = getattr(model, options.attribute), options.arguments

    @torch.no_grad()
    def __call__(self, **inputs: Any) -> Any:
        return self.method(**inputs, **self.arguments)
