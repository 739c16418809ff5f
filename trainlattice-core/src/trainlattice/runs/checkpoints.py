"""What a person asks of checkpoint files: which there are, whether they are whole, what is in them.

Torch-free, but for :func:`inspected`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlattice.checkpoint.index import INDEX, index_fault, read_index
from trainlattice.checkpoint.inventory import File, Retention, Verified, inventory, leftovers, verify
from trainlattice.diagnostics.errors import CheckpointError
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.stored import stored_config, stored_json
from trainlattice.training.stopping import direction_of

if TYPE_CHECKING:
    from trainlattice.checkpoint.inspection import Inspection


@dataclass(frozen=True)
class Listing:
    """The checkpoints of one directory.

    :param leftovers: temporary files of saves that did not end.
    """

    directory: Path
    files: list[File]
    leftovers: list[Path]

    def as_json(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "files": [file.as_json() for file in self.files],
            "leftovers": [path.name for path in self.leftovers],
        }


def listed(path: Path) -> Listing:
    """The checkpoints of a run directory, or of a directory of checkpoints.

    :raises CheckpointError: if there is no such directory, or its index cannot be understood.
    """
    directory = _directory(path)
    return Listing(
        directory, inventory(directory, _retention(directory.absolute().parent)), leftovers(directory)
    )


def verified(path: Path) -> list[Verified]:
    """Every checkpoint of a run, or one file, compared with its checksums.

    :raises CheckpointError: if there is nothing to verify, or an index cannot be understood.
    """
    if path.is_file() or not path.exists():
        if not path.exists() and path.name not in _index_beside(path):
            raise CheckpointError(f"{path} does not exist")
        return verify([path])
    directory = _directory(path)
    found = verify([file.path for file in inventory(directory)])
    if not found:
        raise CheckpointError(f"{directory} holds no checkpoint")
    fault = index_fault(directory)
    return found if fault is None else [*found, Verified(directory / INDEX, "damaged", fault)]


def inspected(path: Path) -> Inspection:
    """What is in a checkpoint file, or in ``last.pt`` of a run.

    :raises CheckpointError: if there is none, or it cannot be read safely.
    """
    from trainlattice.checkpoint.inspection import inspect
    from trainlattice.checkpoint.store import checkpoint_of

    return inspect(checkpoint_of(path))


def _directory(path: Path) -> Path:
    """The directory of checkpoints that a path means."""
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; give a run directory")
    if not path.is_dir():
        raise CheckpointError(f"{path} is a file; give its run directory, {path.absolute().parent.parent}")
    run = RunDirectory(path)
    if run.checkpoints.is_dir():
        return run.checkpoints
    if (path / INDEX).is_file() or next(path.glob("*.pt"), None) is not None:
        return path
    if path.name == run.checkpoints.name and (path.absolute().parent / "manifest.json").is_file():
        return path  # of a run that has saved nothing yet
    if run.manifest.is_file():
        raise CheckpointError(f"{run.checkpoints} does not exist; {path} holds no checkpoint")
    raise CheckpointError(f"{path} is no run directory and holds no checkpoint")


def _index_beside(path: Path) -> dict[str, Any]:
    return read_index(path.parent) if path.parent.is_dir() else {}


def _retention(run: Path) -> Retention:
    """What the configuration of a run says about it. What cannot be read has its default."""
    config = stored_config(RunDirectory(run)) or {}
    section, trainer = (
        found if isinstance(found := config.get(name), dict) else {} for name in ("checkpoint", "trainer")
    )

    def count(key: str, default: int | None, *, at_least: int = 1) -> int | None:
        value = section.get(key, default)
        return value if value is None or (type(value) is int and value >= at_least) else default

    monitor, mode = trainer.get("monitor"), trainer.get("monitor_mode")
    monitor = monitor if isinstance(monitor, str) else Retention.monitor
    direction = (stored_json(RunDirectory(run).manifest) or {}).get("monitor_direction")
    if mode in ("min", "max") or direction not in ("min", "max"):  # the second of a run that had not begun
        direction = direction_of(monitor, mode if mode in ("min", "max") else "auto")
    return Retention(
        count("keep_last", Retention.keep_last),
        count("keep_every_epochs", Retention.keep_every_epochs),
        count("keep_best", Retention.keep_best, at_least=0) or 0,
        monitor,
        direction,
    )
