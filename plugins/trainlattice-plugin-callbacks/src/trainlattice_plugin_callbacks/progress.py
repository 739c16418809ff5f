"""A progress bar on a terminal."""

from __future__ import annotations

import sys

from trainlattice.training.callbacks import Callback
from trainlattice_plugin_callbacks.options import ProgressOptions


def build(options: ProgressOptions) -> Callback:
    """The bar, or a callback that does nothing where nobody would see it."""
    if sys.stdout is None or not sys.stdout.isatty():
        return Callback()  # rich is not even imported
    from trainlattice_plugin_callbacks.bar import ProgressBar

    return ProgressBar(options)
