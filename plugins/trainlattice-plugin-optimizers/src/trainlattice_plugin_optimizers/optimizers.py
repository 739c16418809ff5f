"""The built-in optimizers: torch's, from checked options.

``implementation`` is ``auto``, ``fused``, ``foreach`` or ``loop``. ``auto`` is fused where torch has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, optim

from trainlattice.contracts.options import OptionError
from trainlattice_plugin_optimizers.options import AdamOptions, AdamWOptions, SGDOptions

FUSED_DEVICES = frozenset({"cpu", "cuda"})


def adamw(options: AdamWOptions, params: Sequence[Tensor], implementation: str = "auto") -> optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019)."""
    return optim.AdamW(params, **options.model_dump(), **_kernels(implementation, params))


def adam(options: AdamOptions, params: Sequence[Tensor], implementation: str = "auto") -> optim.Adam:
    """Adam (Kingma and Ba 2015); AMSGrad (Reddi, Kale and Kumar 2018)."""
    return optim.Adam(params, **options.model_dump(), **_kernels(implementation, params))


def sgd(options: SGDOptions, params: Sequence[Tensor], implementation: str = "auto") -> optim.SGD:
    """SGD with momentum as torch defines it."""
    # torch's fused kernel allocates momentum at the first step and does not fill it in if that step is skipped (a
    # scaler does that). Zeros give the same first step, except with dampening, which torch leaves out of it.
    damped = options.momentum > 0 and options.dampening > 0
    if damped and implementation == "fused":
        raise OptionError("implementation", "fused has no dampening here: use foreach")
    kernels = _kernels("foreach" if damped and implementation == "auto" else implementation, params)
    optimizer = optim.SGD(params, **options.model_dump(), **kernels)
    if options.momentum > 0 and kernels["fused"]:
        for parameter in params:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def _kernels(implementation: str, params: Sequence[Tensor]) -> dict[str, bool]:
    """``fused`` and ``foreach`` as torch's optimizers take them."""
    fusible = all(p.is_floating_point() and p.device.type in FUSED_DEVICES for p in params)
    if implementation == "fused" and not fusible:
        raise OptionError(
            "implementation", "torch fuses only updates of floating-point tensors on cpu or cuda"
        )
    if implementation == "auto":
        implementation = "fused" if fusible else "foreach"
    return {"fused": implementation == "fused", "foreach": implementation == "foreach"}
