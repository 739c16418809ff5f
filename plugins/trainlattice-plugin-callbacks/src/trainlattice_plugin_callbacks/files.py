"""Files that callbacks leave in the run directory."""

from __future__ import annotations

from pathlib import Path

from trainlattice.training.trainer import Trainer


def run_directory(trainer: Trainer, *names: str) -> Path:
    """The run directory, or one below it, which is made.

    :raises ValueError: for a Trainer that has none.
    """
    if trainer.run_dir is None:
        raise ValueError("this callback writes files, and the Trainer has no run directory")
    directory = trainer.run_dir.joinpath(*names)
    directory.mkdir(exist_ok=True)
    return directory
