"""Metrics of tokens: definitions are those of ``torchmetrics.text``."""

from __future__ import annotations

from torchmetrics.text import Perplexity

from trainlattice_plugin_metrics.measured import Measured
from trainlattice_plugin_metrics.options import PerplexityOptions


def perplexity(options: PerplexityOptions) -> Measured:
    """Of logits ``[B, T, V]`` and tokens ``[B, T]``."""
    return Measured(Perplexity(ignore_index=options.ignore_index))
