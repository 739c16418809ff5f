"""The chain of runs that continue one another, and their records joined: each step once, in order. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.stored import stored_json

Record = dict[str, Any]


@dataclass(frozen=True)
class Link:
    """One run of a chain.

    :param records: all of its own, as far as they can be read.
    :param resumed_from: the checkpoint that it continues, or None.
    :param manifest: None if it cannot be read.
    """

    run: RunDirectory
    records: list[Record]
    manifest: Record | None
    resumed_from: Path | None

    @property
    def begins_at(self) -> int | None:
        """The step of the checkpoint that it continues; None if it does not say."""
        for record in self.records:
            if record.get("event") == "resume":
                step: int = record["step"]
                return step
        return None


@dataclass
class Chain:
    """A run and those that it continues, the oldest first.

    :param notes: what is missing or damaged.
    """

    links: list[Link] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """Those of every run, without what a later run did again after the checkpoint that it continues."""
        kept: list[Record] = []
        end: tuple[int, str] | None = None  # step and name of the checkpoint that the chain goes on from
        for link in reversed(self.links):
            kept = (link.records if end is None else _up_to(link.records, *end, later=kept)) + kept
            begin = link.begins_at
            if begin is not None and link.resumed_from is not None and (end is None or begin <= end[0]):
                end = begin, link.resumed_from.name
        return kept


def read_chain(run: RunDirectory) -> Chain:
    """A run with all that it continues. What is gone or damaged is noted."""
    chain = Chain()
    seen: set[Path] = set()
    current: RunDirectory | None = run
    while current is not None:
        seen.add(_real(current.path))
        link = _read_link(current, chain.notes)
        chain.links.insert(0, link)
        if link.resumed_from is None:
            break
        parent = continued_run(current, link.resumed_from)
        current = None
        if parent is None:
            chain.notes.append(f"{link.run.path} continues {link.resumed_from}, whose run directory is gone")
        elif _real(parent.path) in seen:
            chain.notes.append(f"{link.run.path} continues {parent.path}, which continues it in turn")
        else:
            current = parent
    return chain


def joined_records(run: Path | str) -> list[Record]:
    """The records of a run and of those that it continues: each step once, in order."""
    return read_chain(RunDirectory(Path(run))).records


def continued_checkpoint(manifest: Mapping[str, Any]) -> Path | None:
    """The checkpoint that a run continues, where it was when the run began."""
    source, directory = manifest.get("resumed_from"), manifest.get("working_directory")
    if not isinstance(source, str) or not source:
        return None
    return Path(directory) / source if isinstance(directory, str) else Path(source)


def continued_run(run: RunDirectory, checkpoint: Path) -> RunDirectory | None:
    """The run directory that the checkpoint lies, or lay, in: where it was, or, if runs were moved together,
    beside the run that continues it. None if it is gone."""
    beside = run.path.absolute().parent / checkpoint.parent.parent.name
    for directory in (checkpoint.parent.parent, checkpoint.parent, beside):
        found = RunDirectory(directory)
        if found.manifest.is_file() or found.metrics.is_file():
            return found
    return None


def continued_runs(run: RunDirectory) -> tuple[Path, ...]:
    """The directories of the runs that a run continues, the oldest first, as far as they are there."""
    found: list[Path] = []
    current: RunDirectory | None = run
    while current is not None:
        checkpoint = continued_checkpoint(stored_json(current.manifest) or {})
        current = continued_run(current, checkpoint) if checkpoint is not None else None
        if current is None or _real(current.path) in map(_real, (run.path, *found)):
            break
        found.insert(0, current.path.absolute())
    return tuple(found)


def read_records(path: Path, notes: list[str]) -> list[Record]:
    """The records of a file. A last line that was cut off is passed over; a damaged one before it is noted."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.append(f"{path} cannot be read: {error.strerror or error}")
        return []
    records: list[Record] = []
    damaged = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = parse_record(line)
        if record is not None:
            records.append(record)
        elif number < len(lines):  # the last one has no line end: it was being written
            damaged.append(number)
    if damaged:
        shown = ", ".join(map(str, damaged[:5])) + (", ..." if len(damaged) > 5 else "")
        notes.append(f"{path}: left out what is no record, in line {shown}")
    return records


def parse_record(line: bytes) -> Record | None:
    """One line of metrics.jsonl; None if it is not whole."""
    try:
        record = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    types: dict[str, Any] = {
        "type": str,
        "epoch": int,
        "step": int,
        "at": (str, type(None)),
        "files": (list, type(None)),
        "records": (int, type(None)),
    }
    if not isinstance(record, dict) or not all(isinstance(record.get(k), kind) for k, kind in types.items()):
        return None
    return record


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not strict JSON")


def _read_link(run: RunDirectory, notes: list[str]) -> Link:
    manifest = stored_json(run.manifest)
    if manifest is None:
        notes.append(f"{run.manifest} cannot be read: what the run continues is not known")
    return Link(run, read_records(run.metrics, notes), manifest, continued_checkpoint(manifest or {}))


def _up_to(records: list[Record], step: int, name: str, *, later: list[Record]) -> list[Record]:
    """The records that a checkpoint follows: those of earlier steps, and those of its own step that were written
    before it, or that no later run wrote again (a kill may fall between an epoch's end and its checkpoint)."""
    saved = [i for i, r in enumerate(records) if r["step"] == step and name in (r.get("files") or ())]
    # One that was written in the background is told of after records that it does not know.
    last = records[saved[-1]].get("records", saved[-1]) if saved else len(records)
    again = {_key(record) for record in later if record["step"] == step}

    def stays(place: int, record: Record) -> bool:
        if record["step"] != step:
            return bool(record["step"] < step)
        return place < last if record["type"] == "event" else _key(record) not in again

    return [record for place, record in enumerate(records) if stays(place, record)]


def _key(record: Record) -> tuple[Any, ...]:
    """What no two records of one chain share, but for events."""
    return record["type"], record["epoch"], record["step"], record.get("at")


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # RuntimeError: a loop of links
        return path.absolute()
