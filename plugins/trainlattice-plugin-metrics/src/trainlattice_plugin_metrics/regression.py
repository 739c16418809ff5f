"""Metrics of values: definitions are those of ``torchmetrics.regression``."""

from __future__ import annotations

import torchmetrics

from trainlattice_plugin_metrics.measured import Measured
from trainlattice_plugin_metrics.options import MSEOptions, R2Options


def mae() -> Measured:
    return Measured(torchmetrics.MeanAbsoluteError())


def mse(options: MSEOptions) -> Measured:
    return Measured(torchmetrics.MeanSquaredError(squared=options.squared))


def r2(options: R2Options) -> Measured:
    return Measured(torchmetrics.R2Score(multioutput=options.multioutput))
