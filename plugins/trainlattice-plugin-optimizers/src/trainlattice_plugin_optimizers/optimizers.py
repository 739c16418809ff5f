"""The built-in optimizers: torch's, from checked options."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, optim

from trainlattice_plugin_optimizers.options import AdamOptions, AdamWOptions, SGDOptions


def adamw(options: AdamWOptions, params: Iterable[Tensor]) -> optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019)."""
    return optim.AdamW(params, **options.model_dump())


def adam(options: AdamOptions, params: Iterable[Tensor]) -> optim.Adam:
    """Adam (Kingma and Ba 2015); AMSGrad (Reddi, Kale and Kumar 2018)."""
    return optim.Adam(params, **options.model_dump())


def sgd(options: SGDOptions, params: Iterable[Tensor]) -> optim.SGD:
    """SGD with momentum as torch defines it."""
    return optim.SGD(params, **options.model_dump())
