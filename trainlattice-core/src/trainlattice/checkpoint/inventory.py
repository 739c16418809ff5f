"""Which checkpoints a directory holds, what each is for, and whether its bytes are those that were written.
Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from trainlattice.checkpoint.durable import digest
from trainlattice.checkpoint.index import INDEX, Entry, read_index
from trainlattice.checkpoint.names import Purpose, epoch_in, purpose_of, step_in
from trainlattice.checkpoint.peek import peek
from trainlattice.checkpoint.seal import own_fault

State = Literal["present", "missing", "damaged", "unlisted"]
Verdict = Literal["ok", "damaged", "missing", "unlisted"]


@dataclass(frozen=True)
class Retention:
    """Which numbered checkpoints of a run are kept, as its section ``checkpoint`` says; by default none.

    :param keep_last: the newest so many; None keeps all.
    :param keep_every_epochs: those of each so many epochs; None: none for that reason.
    :param keep_best: the best so many.
    :param monitor: the validation metric that says which are the best.
    :param direction: which way it is better.
    """

    keep_last: int | None = 1
    keep_every_epochs: int | None = None
    keep_best: int = 1
    monitor: str = "val_loss"
    direction: Literal["min", "max"] = "min"


@dataclass(frozen=True)
class File:
    """One checkpoint of a directory: a file, or an entry of the index whose file is missing.

    :param state: ``damaged`` here means that its size is none that was written: the bytes are not read.
    :param epoch: completed epochs; None if neither the file nor the index says.
    :param size: bytes of the file; of a missing one, those that were written.
    :param protected: why retention does not remove it; None if it may.
    :param note: what is wrong with it.
    """

    path: Path
    purpose: Purpose
    state: State
    epoch: int | None
    global_step: int | None
    size: int
    protected: str | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.path.name, **{k: v for k, v in vars(self).items() if k != "path"}}


def inventory(directory: Path, retention: Retention | None = None) -> list[File]:
    """Every checkpoint of a directory, by step. Reads no tensor.

    :param retention: None: that of a configuration that says nothing about it.
    :raises CheckpointError: if the index cannot be understood.
    """
    index = read_index(directory)
    names = {path.name for path in _standing(directory)}
    found = [_file(directory / name, index.get(name)) for name in sorted({*names, *index})]
    found.sort(key=lambda file: file.global_step if file.global_step is not None else -1)
    return _protected(found, retention or Retention())


def leftovers(directory: Path) -> list[Path]:
    """Temporary files of saves that did not end; the next save removes them."""
    return sorted(directory.glob(".*.tmp"))


def entry_of(path: Path, entries: list[Entry]) -> Entry | None:
    """Which entry of the index describes the file that stands: the newest, unless a save was cut off before
    the file took its name. Compares sizes and steps, not bytes; None if it is none of them."""
    size = path.stat().st_size
    fitting = [entry for entry in entries if entry.size == size]
    if len(fitting) > 1 and (seen := peek(path)) is not None:
        fitting = [entry for entry in fitting if entry.global_step == seen.global_step] or fitting
    return fitting[0] if fitting else None


def _standing(directory: Path) -> list[Path]:
    return [
        path
        for path in directory.iterdir()
        if path.is_file() and path.name != INDEX and not path.name.startswith(".")
    ]


def _file(path: Path, entries: list[Entry] | None) -> File:
    purpose = purpose_of(path.name)
    if not path.is_file():
        assert entries
        entry = entries[0]
        return File(path, purpose, "missing", entry.epoch, entry.global_step, entry.size, note="missing")
    size = path.stat().st_size
    if entries is None:
        seen = peek(path)
        epoch, step = (seen.epoch, seen.global_step) if seen else (None, None)
        note = "not in the index" if seen else "not in the index, and cannot be read as a checkpoint"
        return File(path, purpose, "unlisted", epoch, step, size, note=note)
    found = entry_of(path, entries)
    if found is not None:
        return File(path, purpose, "present", found.epoch, found.global_step, size)
    note = f"damaged: it has {size} bytes, and {entries[0].size} were written"
    return File(path, purpose, "damaged", entries[0].epoch, entries[0].global_step, size, note=note)


# --- retention -----------------------------------------------------------------------------------


def _protected(files: list[File], retention: Retention) -> list[File]:
    named = {_identity(f.path): f.path.name for f in files if f.purpose in ("last", "best") and _stands(f)}
    best = _best(files, retention)
    newest = _newest(files, retention, best)
    kept = []
    for file in files:
        why: str | None = None
        if file.purpose in ("last", "best"):
            why = file.purpose
        elif not _stands(file):
            pass
        elif _identity(file.path) in named:
            why = f"the same file as {named[_identity(file.path)]}"
        elif file.path.name in newest:
            why = "keep_last"
        elif file.path.name in best:
            why = "keep_best"
        elif _is_kept_epoch(file.path.name, retention.keep_every_epochs):
            why = "keep_every_epochs"
        kept.append(replace(file, protected=why))
    return kept


def _steps(files: list[File]) -> list[tuple[int, File]]:
    """The files ``step-N.pt`` that stand, by N."""
    found = [
        (step, file) for file in files if (step := step_in(file.path.name)) is not None and _stands(file)
    ]
    return sorted(found, key=lambda each: each[0])


def _best(files: list[File], retention: Retention) -> set[str]:
    """The names of those that ``keep_best`` keeps: of equal ones the first. With one, ``best.pt`` stands for it."""
    if retention.keep_best < 2:
        return set()
    ranked = []
    for step, file in _steps(files):
        value = _value(file.path, retention.monitor)
        if value is not None:
            ranked.append((value if retention.direction == "min" else -value, step, file.path.name))
    return {name for _, _, name in sorted(ranked)[: retention.keep_best]}


def _value(path: Path, metric: str) -> float | None:
    """What a validation of just this checkpoint measured, if it was finite."""
    seen = peek(path)
    if seen is None or seen.trainer.get("validated_at") != seen.global_step:
        return None
    measured = seen.trainer.get("validation")
    value: Any = measured.get(metric) if isinstance(measured, dict) else None
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def _newest(files: list[File], retention: Retention, best: set[str]) -> set[str]:
    """The names of those that ``keep_last`` keeps. With one, ``last.pt`` stands for it.

    What is among the best may never have been the newest, and takes nobody's place unless it is ``last.pt`` too.
    """
    keep = retention.keep_last
    if keep == 1:
        return set()
    last = {file.global_step for file in files if file.purpose == "last"}
    names = [f.path.name for step, f in _steps(files) if f.path.name not in best or step in last]
    return set(names if keep is None else names[-keep:])


def _is_kept_epoch(name: str, every: int | None) -> bool:
    epoch = epoch_in(name)
    return every is not None and epoch is not None and epoch % every == 0


def _stands(file: File) -> bool:
    return file.state != "missing"


def _identity(path: Path) -> tuple[int, int]:
    """The same for two names of one file."""
    status = path.stat()
    return status.st_dev, status.st_ino


# --- verifying -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verified:
    """What became of the bytes of one checkpoint.

    :param verdict: ``unlisted``: not in the index, and whole by the checksums in the file itself.
    """

    path: Path
    verdict: Verdict
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"name": self.path.name, "verdict": self.verdict, "note": self.note}


def verify(paths: Iterable[Path]) -> list[Verified]:
    """Compares the bytes of each file with the index beside it; those of one that is not in it with the CRCs
    in the file. Two names of one file are read once.

    :raises CheckpointError: if an index cannot be understood.
    """
    digests: dict[tuple[int, int], tuple[str, int]] = {}
    indexes: dict[Path, dict[str, list[Entry]]] = {}
    found = []
    for path in paths:
        if path.parent not in indexes:
            indexes[path.parent] = read_index(path.parent)
        entries = indexes[path.parent].get(path.name)
        try:
            if not path.is_file():
                found.append(Verified(path, "missing", "in the index, and there is no file"))
            elif entries is None:
                found.append(_by_its_own_checksums(path))
            else:
                if _identity(path) not in digests:
                    digests[_identity(path)] = digest(path)
                found.append(_by_the_index(path, entries, *digests[_identity(path)]))
        except OSError as error:
            found.append(Verified(path, "damaged", f"cannot be read: {error.strerror or error}"))
    return found


def _by_the_index(path: Path, entries: list[Entry], sha256: str, size: int) -> Verified:
    for entry in entries:
        if entry.sha256 == sha256:
            return Verified(path, "ok", f"epoch {entry.epoch}, step {entry.global_step}")
    expected = entries[0]
    if size != expected.size:
        return Verified(path, "damaged", f"it has {size} bytes, and {expected.size} were written")
    return Verified(
        path, "damaged", f"its sha256 is {sha256[:12]}..., and the index has {expected.sha256[:12]}..."
    )


def _by_its_own_checksums(path: Path) -> Verified:
    fault = own_fault(path)
    if fault is not None:
        return Verified(path, "damaged", f"not in the index; {fault}")
    return Verified(path, "unlisted", "not in the index; whole by the checksums in the file")
