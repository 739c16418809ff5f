"""All that one run directory tells about a run, and the metrics of the runs that it continues. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainlattice.diagnostics.errors import UsageError
from trainlattice.runs.chain import Chain, Record, read_chain
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.listing import RunSummary, summarized
from trainlattice.runs.stored import stored_config

_FROM_MANIFEST = (
    "command",
    "seed",
    "trainlattice",
    "git_commit",
    "git_dirty",
    "git_diff_sha256",
    "git_diff_note",
    "working_directory",
    "process",
    "started",
    "finished",
    "error",
    "stop_reason",
    "optimizer_implementation",
    "components",
    "plugins",
    "data",
)


@dataclass(frozen=True)
class ShownRun:
    """What is known of a run.

    :param config: its resolved configuration; None if that cannot be read.
    :param manifest: the entries that are shown.
    """

    summary: RunSummary
    config: dict[str, Any] | None
    manifest: dict[str, Any]
    chain: Chain

    @property
    def records(self) -> list[Record]:
        """Of the whole chain, joined."""
        return self.chain.records

    def as_json(self) -> dict[str, Any]:
        return {
            **self.summary.as_json(),
            **self.manifest,
            "config": self.config,
            "chain": [
                {
                    "path": str(link.run.path),
                    "status": summarized(link.run.path).status,
                    "continues": str(link.resumed_from) if link.resumed_from else None,
                    "begins_at": link.begins_at,
                    "records": len(link.records),
                }
                for link in self.chain.links
            ],
            "notes": self.chain.notes,
            "records": self.records,
        }


def shown(path: Path) -> ShownRun:
    """Reads a run. What is missing or damaged is noted.

    :raises UsageError: if it is no run directory.
    """
    run = run_directory(path)
    chain = read_chain(run)
    manifest = chain.links[-1].manifest or {}
    known = {key: manifest[key] for key in _FROM_MANIFEST if key in manifest}
    return ShownRun(summarized(run.path), stored_config(run), known, chain)


def run_directory(path: Path) -> RunDirectory:
    """The run that a path means, whole or broken.

    :raises UsageError: if it is no run directory.
    """
    if not path.is_dir():
        reason = "is a file" if path.exists() else "does not exist"
        raise UsageError(f"{path} {reason}; give a run directory")
    run = RunDirectory(path)
    if not any(file.is_file() for file in (run.manifest, run.config, run.metrics)):
        below = f"; see the runs in it with: trainlattice runs list {path}" if _holds_runs(path) else ""
        raise UsageError(f"{path} is no run directory: it has no manifest.json{below}")
    return run


def _holds_runs(path: Path) -> bool:
    return any((below / "manifest.json").is_file() for below in path.iterdir())
