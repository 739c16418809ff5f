"""Run directories: made once, never reused, found again by path. Torch-free."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from trainlattice.config.snapshot import snapshot_text
from trainlattice.diagnostics.errors import UsageError
from trainlattice.diagnostics.nodes import Plain

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


def create(config: ResolvedConfig) -> RunDirectory:
    """A fresh directory ``<runs_dir>/<time>_<name>`` with the resolved configuration in it.

    Local component files are copied into it, so that the directory is enough to run again.
    """
    base = Path(config.experiment.runs_dir)
    stem = f"{datetime.now():%Y%m%d-%H%M%S}_{_file_name(config.experiment.name)}"
    try:
        base.mkdir(parents=True, exist_ok=True)
        run = RunDirectory(_fresh(base, stem))
        run.checkpoints.mkdir()
    except OSError as error:
        raise UsageError(
            f"no run directory can be made in {base} (experiment.runs_dir): {error.strerror or error}"
        ) from None
    plain = config.as_plain()
    _copy_local_files(config, run, plain)
    run.config.write_text(snapshot_text(plain), encoding="utf-8")
    return run


def _fresh(base: Path, stem: str) -> Path:
    """Two runs that start in the same second get two directories."""
    number = 1
    while True:
        path = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


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
        shutil.copyfile(source, target)
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
