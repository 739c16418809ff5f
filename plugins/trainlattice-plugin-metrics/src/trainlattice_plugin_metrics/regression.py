"""Metrics of values and images. Sums are float64."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import MeanAbsoluteError, MeanSquaredError, Metric, R2Score
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

from trainlattice_plugin_metrics.measure import Measure, Prepare
from trainlattice_plugin_metrics.options import (
    MaeOptions,
    MseOptions,
    PsnrOptions,
    R2Options,
    SsimOptions,
)


def mae(options: MaeOptions) -> Measure:
    return _exact(MeanAbsoluteError(**options.model_dump()))


def mse(options: MseOptions) -> Measure:
    return _exact(MeanSquaredError(**options.model_dump()))


def r2(options: R2Options) -> Measure:
    """The variance is a difference of sums of squares: of targets far from zero, float32 has nothing left."""
    return _exact(R2Score(**options.model_dump()), _as_float64, at_least=("total", 2))


def psnr(options: PsnrOptions) -> Measure:
    return _exact(PeakSignalNoiseRatio(**options.model_dump()))


def ssim(options: SsimOptions) -> Measure:
    return _exact(StructuralSimilarityIndexMeasure(**options.model_dump()))


def _exact(
    metric: Metric, prepare: Prepare | None = None, at_least: tuple[str, int] | None = None
) -> Measure:
    return Measure(metric.set_dtype(torch.float64), prepare, at_least)


def _as_float64(name: str, value: Any, first: bool) -> Any:
    return value.double() if isinstance(value, Tensor) else value
