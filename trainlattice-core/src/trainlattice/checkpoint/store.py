"""Checkpoint files in a directory: written whole or not at all, and checked before they are used.

A file is written under a temporary name in the same directory and synced to disk. The index then lists its
digest beside the old one, durably, before the file takes its name: whatever the instant of a kill, the
file that stands is one that the index knows.
"""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from trainlattice.checkpoint.durable import digest, discard, second_name, sync_directory, write_durably
from trainlattice.checkpoint.format import Checkpoint
from trainlattice.checkpoint.index import INDEX, Entry, read_index
from trainlattice.checkpoint.names import EMERGENCY, LAST, NOT_FINITE
from trainlattice.checkpoint.peek import peek
from trainlattice.checkpoint.seal import own_fault, save_sealed
from trainlattice.diagnostics.errors import CheckpointError, CheckpointWriteError

logger = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoints of one run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def save(self, checkpoint: Checkpoint, names: Sequence[str]) -> list[Path]:
        """Writes one checkpoint under one or more names. On failure every earlier file is as it was.

        :raises CheckpointWriteError: if the disk is full, read-only or gone, or if the checkpoint holds
            something that could not be loaded again.
        """
        temporary = self.directory / f".{names[0]}.{os.getpid()}.tmp"
        ready: list[Path] = []
        try:
            self._remove_leftovers()
            sha256, size = save_sealed(checkpoint.as_plain(), temporary)
            # Maps the file and reads no tensor: what needs code to be loaded is found now, not on resume.
            torch.load(os.fspath(temporary), map_location="cpu", weights_only=True, mmap=True)
            epoch, step = checkpoint.trainer["epoch"], checkpoint.trainer["global_step"]
            entry = Entry(sha256, size, epoch, step)
            # Each further name is a link to the same bytes, or a copy that may not fit on the disk: all are ready
            # before any earlier file is replaced. The first, last.pt, comes last: when it says that the run is
            # over, the others are there.
            ordered = [self.directory / name for name in (*names[1:], names[0])]
            for path in ordered[:-1]:
                ready.append(second_name(temporary, path))
            ready.append(temporary)
            self._announce(dict.fromkeys(names, entry))
            for prepared, path in zip(ready, ordered, strict=True):
                os.replace(prepared, path)
            sync_directory(self.directory)
        except BaseException as error:
            for prepared in {*ready, temporary}:
                discard(prepared)
            if isinstance(error.__context__, KeyboardInterrupt):  # torch's zip writer raises over it
                raise error.__context__ from None
            reason = _why_not_written(error)
            if reason is None:
                raise
            raise CheckpointWriteError(
                f"{self.directory / names[0]} could not be written: {reason}"
                + "; earlier checkpoints are as they were" * self.directory.is_dir()
            ) from error
        return [self.directory / name for name in names]

    def require_storable(self, state: Any, what: str) -> None:
        """Raises CheckpointWriteError if a state could not be written, or not be loaded without running code."""
        buffer = io.BytesIO()
        try:
            torch.save(state, buffer)
            buffer.seek(0)
            torch.load(buffer, weights_only=True)
        except Exception as error:  # a component's objects may raise anything while they are pickled
            reason = _why_not_written(error)
            if reason is None:
                raise
            raise CheckpointWriteError(f"{what} cannot be saved: {reason}") from error

    def index(self) -> dict[str, list[Entry]]:
        """By file name: the latest entry, and up to two before it for a save that did not end."""
        return read_index(self.directory)

    def remove(self, names: Sequence[str]) -> None:
        """Deletes checkpoints, then their entries in the index. What cannot be deleted stays, with a warning."""
        for name in names:
            try:
                (self.directory / name).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("the old checkpoint %s stays: %s", self.directory / name, error.strerror)
        try:
            if names:
                self._announce({})
        except OSError as error:
            logger.warning("%s still lists checkpoints that were removed: %s", self.directory / INDEX, error)

    def adopt(self, source: Path, name: str, *, epoch: int, global_step: int) -> None:
        """Takes over a checkpoint of another run under this name, by a link or a copy.

        :raises CheckpointError: if it is damaged or cannot be copied.
        """
        sha256, size = verify(source)
        target = self.directory / name
        try:
            ready = second_name(source, target)
            self._announce({name: Entry(sha256, size, epoch, global_step)})
            os.replace(ready, target)
            sync_directory(self.directory)
        except OSError as error:
            raise CheckpointError(f"{source} cannot be taken over as {target}: {error}") from error

    def _announce(self, new: dict[str, Entry]) -> None:
        index = {name: held for name, held in self.index().items() if (self.directory / name).is_file()}
        for name, entry in new.items():
            # A save that fails between here and the rename leaves an entry without a file: the one that
            # stands may then be the one before it.
            index[name] = [entry, *index.get(name, [])[:2]]
        plain = {name: [asdict(entry) for entry in entries] for name, entries in index.items()}
        write_durably(self.directory / INDEX, json.dumps({"schema": 1, "files": plain}, indent=2) + "\n")

    def _remove_leftovers(self) -> None:
        """Temporary files of a process that was killed while it saved."""
        for leftover in self.directory.glob(".*.tmp"):
            discard(leftover)


def load(path: Path, *, mapped: bool = False) -> Checkpoint:
    """Reads a checkpoint after checking that its bytes are those that were written.

    :param mapped: leaves the tensors in the file.

    :raises CheckpointError: if it is absent, damaged, unsafe or foreign; names the alternatives.
    """
    if not path.is_file():
        reason = "is a directory" if path.is_dir() else "does not exist"
        raise CheckpointError(f"{path} {reason}{alternatives(path)}")
    with ThreadPoolExecutor(1, thread_name_prefix="trainlattice-hash") as pool:
        verified = pool.submit(verify, path)
        read = _read(path, mapped=mapped)  # meanwhile; what it found counts only if the bytes are right
        verified.result()
    if isinstance(read, CheckpointError):
        raise read
    try:
        return Checkpoint.from_plain(read, str(path))
    except CheckpointError as error:
        raise CheckpointError(f"{error}{alternatives(path)}") from None


def _read(path: Path, *, mapped: bool) -> Any:
    """The content, or the CheckpointError that says why there is none."""
    try:
        with (
            warnings.catch_warnings()
        ):  # of bytes that are none of ours: they are refused with words of our own
            warnings.simplefilter("ignore")
            return torch.load(os.fspath(path), map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        return CheckpointError(
            f"{path} holds more than tensors and plain data and was not loaded, since that could run code: "
            f"{_what_needs_code(error)}{alternatives(path)}"
        )
    # Bytes that are no checkpoint lead torch to whatever they lead to.
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return CheckpointError(f"{path} cannot be read as a checkpoint: {first}{alternatives(path)}")


def _why_not_written(error: BaseException) -> str | None:
    """None for what has nothing to do with writing, such as an interrupt."""
    if not isinstance(error, Exception):
        return None
    if isinstance(error, pickle.UnpicklingError):
        return f"it would hold {_what_needs_code(error)}, and a state_dict holds tensors and plain containers"
    if isinstance(error, (pickle.PicklingError, AttributeError, TypeError)):
        return f"{error}; a state_dict holds tensors and plain containers"
    # torch raises a RuntimeError of its zip writer while it handles the OSError of a full disk.
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__context__
    return None if cause is None else cause.strerror or str(cause)


def _what_needs_code(error: pickle.UnpicklingError) -> str:
    """The name in torch's long message of refusal."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return found[1] if found else str(error).strip().splitlines()[0]


def verify(path: Path) -> tuple[str, int]:
    """sha256 and size of a file that is as it was written: by the index, and one that lies alone by its own seal or
    the CRCs of its zip records. Raises CheckpointError if it is not."""
    known = read_index(path.parent).get(path.name)
    try:
        sha256, size = digest(path)
        fault = own_fault(path) if known is None else None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}{alternatives(path)}") from None
    if known is not None and all(entry.sha256 != sha256 for entry in known):
        size_note = (
            "" if size == known[0].size else f" (it has {size} bytes, and {known[0].size} were written)"
        )
        raise CheckpointError(
            f"{path} is damaged: its sha256 is {sha256[:12]}..., and the index has {known[0].sha256[:12]}..."
            f"{size_note}{alternatives(path)}"
        )
    if fault is not None:
        raise CheckpointError(f"{path} is damaged: {fault}{alternatives(path)}")
    return sha256, size


def alternatives(path: Path) -> str:
    """Other checkpoints beside this one that are as they were written and can be resumed from."""
    if not path.parent.is_dir():
        return ""
    good = usable(path.parent, but=path.name)
    return f"; usable: {', '.join(good)}" if good else "; there is no other usable checkpoint beside it"


def usable(directory: Path, *, but: str = "") -> list[str]:
    """The checkpoints of a directory that are as they were written and can be resumed from, each with its place.

    :param but: the name of one to leave out.
    """
    index = read_index(directory)
    good = []
    for other in sorted(directory.glob("*.pt")):
        if other.name in (but, EMERGENCY, NOT_FINITE) or other.name.startswith("."):
            continue
        try:
            place = _place_of_whole(other, index.get(other.name))
        except OSError:
            continue
        if place is not None:
            good.append(f"{other} (epoch {place[0]}, step {place[1]})")
    return good


def _place_of_whole(path: Path, entries: list[Entry] | None) -> tuple[int, int] | None:
    """Epoch and step of a checkpoint whose bytes are those that were written; None for any other file."""
    if entries is None:
        seen = peek(path) if own_fault(path) is None else None
        return (seen.epoch, seen.global_step) if seen is not None and seen.kind == "resume" else None
    sha256, _ = digest(path)
    return next(((e.epoch, e.global_step) for e in entries if e.sha256 == sha256), None)


def checkpoint_of(path: Path) -> Path:
    """The checkpoint that a path means: the file itself, or ``last.pt`` of a run directory.

    :raises CheckpointError: if there is none.
    """
    if path.is_dir():
        for candidate in (path / "checkpoints" / LAST, path / LAST):
            if candidate.is_file():
                return candidate
        raise CheckpointError(
            f"{path} has no checkpoints/last.pt and no last.pt{alternatives(path / 'checkpoints' / LAST)}"
        )
    if not path.exists():
        raise CheckpointError(f"{path} does not exist{alternatives(path)}")
    return path
