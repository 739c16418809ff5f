"""``tensorboard``: event files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainlattice import TrackedRun, Tracker
from trainlattice_plugin_trackers.content import numbers, own_directory, plain
from trainlattice_plugin_trackers.libraries import require

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoard(Tracker):
    """Scalars ``batch/loss``, ``epoch/train_loss``, ... over steps, and the configuration as a text."""

    def __init__(self) -> None:
        require("tensorboard")
        from torch.utils import tensorboard  # after the check: its own error does not say how to install it

        self._library = tensorboard
        self._writer: SummaryWriter | None = None

    def start(self, run: TrackedRun) -> None:
        self._writer = self._library.SummaryWriter(str(own_directory(run, "tensorboard")))
        lines = json.dumps(plain(run.config), indent=2).splitlines()
        self._writer.add_text("config", "\n".join(f"    {line}" for line in lines))  # Markdown: as it is

    def log(self, record: Mapping[str, Any]) -> None:
        assert self._writer is not None
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, record["step"], walltime=record["time"])

    def flush(self) -> None:
        assert self._writer is not None
        self._writer.flush()

    def finish(self, status: str, error: str | None) -> None:
        if self._writer is not None:
            self._writer.close()
