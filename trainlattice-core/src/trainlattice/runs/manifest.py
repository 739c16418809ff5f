"""``manifest.json``: what a run is, where its code comes from and how it ended. Torch-free."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainlattice.checkpoint.durable import write_durably
from trainlattice.diagnostics.errors import TrainLatticeError, UsageError
from trainlattice.plugin.provenance import git_changes, git_state
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.process import is_alive, this_process
from trainlattice.runs.provenance import component_records, plugin_records
from trainlattice.version import __version__

if TYPE_CHECKING:
    from trainlattice.config.resolved import ResolvedConfig

SCHEMA = 1


class Manifest:
    """The manifest of a run under way; every change replaces the file as a whole."""

    def __init__(self, run: RunDirectory, content: dict[str, Any]) -> None:
        self.run = run
        self.content = content

    @classmethod
    def create(
        cls,
        run: RunDirectory,
        config: ResolvedConfig,
        *,
        command: str | None,
        resumed_from: Path | None,
        data: Mapping[str, Any] | None = None,
    ) -> Manifest:
        """The manifest of a run that begins.

        :param data: the fingerprint of its data.
        """
        components = component_records(config)
        sources = {
            f"{record['section']}_source": {"module": record["module"], "file": record["file"]}
            for record in components
            if "." not in record["section"]
        }
        manifest = cls(
            run,
            {
                "schema": SCHEMA,
                "name": config.experiment.name,
                "status": "created",
                "command": command,
                "seed": config.experiment.seed,
                "trainlattice": __version__,
                **_repository(Path(config.experiment.runs_dir)),
                "working_directory": _working_directory(),
                "process": this_process(),
                "created": now(),
                "epoch": 0,
                "global_step": 0,
                "monitor": config.trainer.monitor,
                "resumed_from": str(resumed_from) if resumed_from else None,
                **sources,
                "components": components,
                "plugins": plugin_records(config),
                "data": dict(data) if data is not None else None,
            },
        )
        manifest.update()
        return manifest

    @classmethod
    def read(cls, run: RunDirectory) -> Manifest:
        """That of a run that exists."""
        return cls(run, read_manifest(run))

    def update(self, **changes: Any) -> None:
        """Changes entries and writes the file. Raises TrainLatticeError if it cannot be written."""
        self.content.update(changes)
        text = json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"
        try:
            write_durably(self.run.manifest, text)
        except OSError as error:
            raise TrainLatticeError(
                f"{self.run.manifest} could not be written: {error.strerror or error}"
            ) from error


class RunStatus(NamedTuple):
    """What became of a run.

    :param name: as in the manifest, or ``killed`` for a run under way whose process is gone.
    :param note: what could not be found out; empty if nothing.
    """

    name: str
    note: str = ""


def status_of(manifest: Mapping[str, Any]) -> RunStatus:
    """The status of a run now: what its manifest says, unless its process ended without a word."""
    name = str(manifest.get("status", "unknown"))
    if name not in ("created", "running"):
        return RunStatus(name)
    process = manifest.get("process")
    if not isinstance(process, Mapping):
        return RunStatus(name, "its manifest names no process: whether it is under way cannot be checked")
    alive = is_alive(process)
    if alive == "unknown":
        host = process.get("host")
        return RunStatus(name, f"on host {host!r}: whether it is under way cannot be checked from here")
    return RunStatus(name if alive else "killed")


def _repository(runs_dir: Path) -> dict[str, Any]:
    """Commit and changes of the repository that the run was started in."""
    directory = _working_directory()
    commit, dirty = git_state(Path(directory)) if directory else (None, None)
    digest, note = git_changes(Path(directory), leave_out=runs_dir) if directory and dirty else (None, None)
    found = {"git_commit": commit, "git_dirty": dirty, "git_diff_sha256": digest}
    return {**found, "git_diff_note": note} if note else found


def _working_directory() -> str | None:
    """None if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def read_manifest(run: RunDirectory) -> dict[str, Any]:
    """The content of a run's manifest. Raises UsageError if there is none that can be read."""
    try:
        content = json.loads(run.manifest.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{run.path} is no run directory: it has no manifest.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{run.manifest} cannot be read: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{run.manifest} cannot be read: it holds no mapping")
    components = content.get("components")
    if not isinstance(components, list) or not all(
        isinstance(record, dict) and {"distribution", "version"} <= record.keys() for record in components
    ):
        raise UsageError(f"{run.manifest} cannot be read: its components are no list of records")
    return content


def now() -> str:
    """The time as ISO 8601, UTC, to the millisecond."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
