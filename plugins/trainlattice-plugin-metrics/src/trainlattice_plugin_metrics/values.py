"""The mean of any value."""

from __future__ import annotations

import torchmetrics

from trainlattice_plugin_metrics.measured import Measured


def mean() -> Measured:
    """Of every element of ``value``, each as much as any other."""
    return Measured(torchmetrics.MeanMetric(nan_strategy="disable"))
