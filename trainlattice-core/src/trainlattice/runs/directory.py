"""Run directories: made once, never reused, found again by path. Torch-free."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trainlattice.checkpoint.durable import sync_directory, write_durably
from trainlattice.config.snapshot import snapshot_text
from trainlattice.diagnostics.errors import TrainLatticeError, UsageError
from trainlattice.diagnostics.nodes import Plain
from trainlattice.plugin.local import executed_source

if TYPE_CHECKING:
    from trainlattice.config.resolved import ResolvedConfig

MOST_NAME_BYTES = 120  # file systems allow 255 for a name


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def local_plugins(self) -> Path:
        return self.path / "local"


def create(config: ResolvedConfig, fill: Callable[[RunDirectory], None]) -> RunDirectory:
    """A fresh directory ``<runs_dir>/<time>_<name>`` with the resolved configuration in it.

    Local component files are copied into it, so that the directory is enough to run again. It is made under a
    hidden name and takes its own when everything is in it: whatever the instant of a kill, a run directory says
    what it is.

    :param fill: writes the other files that it must not be without.
    """
    base = Path(config.experiment.runs_dir)
    stem = f"{datetime.now():%Y%m%d-%H%M%S}_{_file_name(config.experiment.name)}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        hidden = RunDirectory(_fresh(base, f".{stem}.{os.getpid()}.tmp"))
    except OSError as error:
        raise UsageError(
            f"no run directory can be made in {base} (experiment.runs_dir): {error.strerror or error}"
        ) from None
    try:
        hidden.checkpoints.mkdir()
        plain = config.as_plain()
        _copy_local_files(config, hidden, plain)
        write_durably(hidden.config, snapshot_text(plain))
        fill(hidden)
        return RunDirectory(_named(hidden.path, base / stem))
    except OSError as error:
        shutil.rmtree(hidden.path, ignore_errors=True)
        raise TrainLatticeError(f"{base / stem} cannot be written: {error.strerror or error}") from error
    except BaseException:
        shutil.rmtree(hidden.path, ignore_errors=True)
        raise


def _fresh(base: Path, stem: str) -> Path:
    """A new directory, by a name that nobody has."""
    number = 1
    while True:
        path = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _named(hidden: Path, wanted: Path) -> Path:
    """Gives a directory its name. Two runs that start in the same second get two names."""
    path, number = wanted, 2
    while True:
        try:
            os.rename(hidden, path)  # fails on a directory that holds something, and each run's does
        except OSError:
            if not path.exists():
                raise
            path, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
            continue
        sync_directory(wanted.parent)
        return path


def _file_name(name: str) -> str:
    """The experiment's name with what no file system takes replaced; cut at a character boundary."""
    clean = re.sub(r'[\x00-\x1f/\\:*?"<>|]+', "-", name).strip(" .") or "experiment"
    return clean.encode()[:MOST_NAME_BYTES].decode(errors="ignore")


def _copy_local_files(config: ResolvedConfig, run: RunDirectory, plain: dict[str, Plain]) -> None:
    names: list[Plain] = []
    for source in map(Path, config.plugins.local):
        run.local_plugins.mkdir(exist_ok=True)
        target = run.local_plugins / source.name
        number = 2
        while target.exists():
            target = run.local_plugins / f"{source.stem}_{number}{source.suffix}"
            number += 1
        write_durably(target, executed_source(source) or source.read_bytes())
        names.append(f"{run.local_plugins.name}/{target.name}")
    plugins = plain["plugins"]
    assert isinstance(plugins, dict)
    plugins["local"] = names


def run_of_checkpoint(checkpoint: Path) -> RunDirectory | None:
    """The run directory that a checkpoint lies in, or None if it lies alone."""
    checkpoint = checkpoint.absolute()
    for directory in (checkpoint.parent.parent, checkpoint.parent):
        if (directory / "config.yaml").is_file():
            return RunDirectory(directory)
    return None
