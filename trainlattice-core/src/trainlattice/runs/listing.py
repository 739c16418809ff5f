"""What run directories there are, and what became of each run. Torch-free."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trainlattice.checkpoint.names import BEST, LAST
from trainlattice.checkpoint.peek import Peek, peek
from trainlattice.diagnostics.errors import UsageError
from trainlattice.runs.chain import continued_checkpoint, continued_run, parse_record
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.manifest import status_of
from trainlattice.runs.stored import stored_json

BROKEN = "broken"
_TAIL_BYTES = 256 * 1024


@dataclass(frozen=True)
class RunSummary:
    """One run in a line.

    :param status: as in the manifest; ``killed`` if its process is gone; ``broken`` if it has no manifest that
        can be read.
    :param epoch: completed epochs.
    :param created: ISO 8601, UTC.
    :param continues: the run that it resumes: its directory's name, or the path if that lies elsewhere.
    :param note: what is wrong or could not be found out.
    """

    name: str
    path: Path
    status: str
    epoch: int | None = None
    global_step: int | None = None
    monitor: str | None = None
    best_metric: float | None = None
    best_epoch: int | None = None
    created: str | None = None
    continues: str | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def list_runs(directory: Path) -> list[RunSummary]:
    """The runs of a directory, the oldest first.

    :raises UsageError: if there is no such directory.
    """
    if not directory.is_dir():
        reason = "is a file" if directory.exists() else "does not exist"
        raise UsageError(f"{directory} {reason}; give a directory that holds run directories")
    if (directory / "manifest.json").is_file():
        raise UsageError(
            f"{directory} is itself a run directory; see it with: trainlattice runs show {directory}"
        )
    try:
        below = [path for path in directory.iterdir() if not path.name.startswith(".") and path.is_dir()]
    except OSError as error:
        raise UsageError(f"{directory} cannot be read: {error.strerror or error}") from None
    return sorted(map(summarized, below), key=lambda run: (run.created or "", run.name))


def summarized(path: Path) -> RunSummary:
    """One run directory; never raises, whatever is wrong with it."""
    run = RunDirectory(path)
    manifest = stored_json(run.manifest)
    if manifest is None:
        reason = "cannot be read" if run.manifest.exists() else "is missing"
        return RunSummary(path.name, path, BROKEN, created=_changed(path), note=f"manifest.json {reason}")
    status = status_of(manifest)
    known: dict[str, Any] = {
        "epoch": _integer(manifest.get("epoch")),
        "global_step": _integer(manifest.get("global_step")),
        "best_metric": _number(manifest.get("best_metric")),
        "best_epoch": _integer(manifest.get("best_epoch")),
    }
    if status.name in ("created", "running", "killed"):
        known = _progress_so_far(run, known)
    return RunSummary(
        path.name,
        path,
        status.name,
        **known,
        monitor=_text(manifest.get("monitor")),
        created=_text(manifest.get("created")) or _changed(path),
        continues=_continued(run, continued_checkpoint(manifest)),
        note=status.note,
    )


def _progress_so_far(run: RunDirectory, known: dict[str, Any]) -> dict[str, Any]:
    """Of a run that has not ended: by its last records, and the best metric by its checkpoints."""
    known = dict(known)
    for record in _last_records(run.metrics):
        known["global_step"] = record["step"]
        known["epoch"] = record["epoch"] if record["type"] == "epoch" else max(0, record["epoch"] - 1)
        break
    seen = [found for name in (LAST, BEST) if (found := peek(run.checkpoints / name)) is not None]
    if seen:
        latest: Peek = max(seen, key=lambda found: found.global_step)
        known["best_metric"] = _number(latest.trainer.get("best_metric"))
        known["best_epoch"] = _integer(latest.trainer.get("best_epoch"))
        known["epoch"] = max(known["epoch"] or 0, latest.epoch)
    return known


def _last_records(path: Path) -> list[dict[str, Any]]:
    """Some of the last records that say how far a run is, the newest first."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    found = [record for line in reversed(lines) if (record := parse_record(line)) is not None]
    return [record for record in found if record["type"] != "event"] or found


def _continued(run: RunDirectory, checkpoint: Path | None) -> str | None:
    if checkpoint is None:
        return None
    found = continued_run(run, checkpoint)
    parent = found.path if found is not None else checkpoint.parent.parent
    return parent.name if parent.parent == run.path.absolute().parent else str(parent)


def _changed(path: Path) -> str | None:
    """When a directory last changed: the best that is known of a broken run."""
    try:
        seconds = path.stat().st_mtime
    except OSError:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
