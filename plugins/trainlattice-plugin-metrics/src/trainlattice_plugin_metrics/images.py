"""Metrics of images ``[B, C, H, W]``: definitions are those of ``torchmetrics.image``."""

from __future__ import annotations

from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

from trainlattice.contracts.options import OptionError
from trainlattice_plugin_metrics.measured import Measured
from trainlattice_plugin_metrics.options import PSNROptions, SSIMOptions


def psnr(options: PSNROptions) -> Measured:
    return Measured(PeakSignalNoiseRatio(data_range=options.data_range))


def ssim(options: SSIMOptions) -> Measured:
    if options.kernel_size % 2 == 0:
        raise OptionError("kernel_size", "must be odd: a window has a middle")
    return Measured(
        StructuralSimilarityIndexMeasure(
            data_range=options.data_range, kernel_size=options.kernel_size, sigma=options.sigma
        )
    )
