"""Runs an experiment: from a file or a mapping to a finished run directory. The entry points of Python code.

The configuration is checked before torch is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainlattice.config.resolve import Resolution, resolve_file, resolve_mapping
from trainlattice.diagnostics.errors import CheckpointError, ConfigError, PluginError
from trainlattice.runs.directory import RunDirectory, run_of_checkpoint
from trainlattice.runs.manifest import read_manifest
from trainlattice.runs.provenance import pins_of_changed, require_installed
from trainlattice.runs.result import RunResult
from trainlattice.runs.stored import stored_config
from trainlattice.training.signals import save_requests_answered

if TYPE_CHECKING:
    from trainlattice.runs.dry_run import DryRun
    from trainlattice.training.callbacks import Callback


def run_from_file(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    local_files: Sequence[Path | str] = (),
    resume: Path | str | None = None,
    extra_callbacks: Iterable[Callback] = (),
    command: str | None = None,
) -> RunResult:
    """Trains what a YAML file says.

    :param overrides: ``KEY=VALUE`` texts, as ``--set`` takes them.
    :param local_files: Python files with components, as ``--plugin`` takes them.
    :param resume: a run directory or checkpoint to continue.
    :param extra_callbacks: called after those of the configuration.
    :param command: recorded in the manifest.
    :raises ConfigError: with every mistake in the configuration.
    """
    resolution = resolve_file(path, overrides, local_files=local_files)
    return execute(resolution, resume=resume, extra_callbacks=extra_callbacks, command=command)


def run_experiment(
    config: dict[str, Any],
    *,
    overrides: Sequence[str] = (),
    local_files: Sequence[Path | str] = (),
    resume: Path | str | None = None,
    extra_callbacks: Iterable[Callback] = (),
    command: str | None = None,
) -> RunResult:
    """As :func:`run_from_file`, for a configuration given as plain data."""
    resolution = resolve_mapping(config, overrides, local_files=local_files)
    return execute(resolution, resume=resume, extra_callbacks=extra_callbacks, command=command)


def dry_run_file(
    path: Path | str, *, overrides: Sequence[str] = (), local_files: Sequence[Path | str] = ()
) -> DryRun:
    """Builds what a YAML file says, takes one batch through every phase and says what the run would be. Creates
    nothing; arguments and errors are those of :func:`run_from_file`."""
    resolution = resolve_file(path, overrides, local_files=local_files)
    from trainlattice.runs.dry_run import dry_run  # imports torch: only now, since all is well

    return dry_run(resolution)


def resume_run(
    path: Path | str,
    *,
    overrides: Sequence[str] = (),
    local_files: Sequence[Path | str] = (),
    extra_callbacks: Iterable[Callback] = (),
    command: str | None = None,
) -> RunResult:
    """Continues a run from its directory, or from a checkpoint in one, with its own configuration.

    :param overrides: changes to that configuration; only what leaves the computation alone may change.
    """
    run, path = run_of(path), Path(path)
    components = read_manifest(run).get("components", ()) if run.manifest.is_file() else ()
    require_installed(components, str(run.path))
    overrides = (*_without_copies_of(run, local_files), *overrides)
    try:
        resolution = resolve_file(run.config, overrides, local_files=local_files)
    except ConfigError as error:
        # It was valid when it was written: perhaps a plugin takes other options now.
        pins = pins_of_changed(components)
        if pins:
            raise PluginError(f"{error}\n{run.path} was written with other versions\n  {pins}") from error
        raise
    return execute(resolution, resume=path, extra_callbacks=extra_callbacks, command=command)


def _without_copies_of(run: RunDirectory, local_files: Sequence[Path | str]) -> list[str]:
    """A file that is given takes the place of the run's copy of one of its name: of one that was mended."""
    stored = (stored_config(run) or {}).get("plugins") or {}
    copies, given = stored.get("local") or [], {Path(file).name for file in local_files}
    if given.isdisjoint(Path(copy).name for copy in copies):
        return []
    kept = [str((run.path / copy).absolute()) for copy in copies if Path(copy).name not in given]
    return [f"plugins.local={json.dumps(kept)}"]


def run_of(path: Path | str) -> RunDirectory:
    """The run directory that a path is, or that a checkpoint lies in. Raises CheckpointError if there is none."""
    path = Path(path)
    run = RunDirectory(path) if (path / "config.yaml").is_file() else run_of_checkpoint(path)
    if run is None:
        if not path.exists():
            raise CheckpointError(f"{path} does not exist; give a run directory or a checkpoint inside one")
        if path.suffix in (".yaml", ".yml"):
            raise CheckpointError(
                f"{path} is a configuration; give a run directory or a checkpoint inside one, or begin a run: "
                f"trainlattice train {path}"
            )
        raise CheckpointError(
            f"{path} has no config.yaml; give a run directory or a checkpoint inside one, or name the "
            f"configuration: trainlattice train CONFIG --resume {path}"
        )
    return run


def execute(
    resolution: Resolution,
    *,
    resume: Path | str | None,
    extra_callbacks: Iterable[Callback],
    command: str | None,
) -> RunResult:
    """Builds and trains a configuration that was checked."""
    with save_requests_answered():
        from trainlattice.runs.execute import execute_run  # imports torch: only now, since all is well

        return execute_run(
            resolution,
            resume=Path(resume) if resume is not None else None,
            extra_callbacks=extra_callbacks,
            command=command,
        )
