"""The index of a directory of checkpoints: the digests that its files must have. Torch-free."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)
INDEX = "index.json"


@dataclass(frozen=True)
class Entry:
    """What the index says about one version of a file."""

    sha256: str
    size: int
    epoch: int
    global_step: int


class _DamagedError(Exception):
    """An index that cannot be understood; the message says why."""


def read_index(directory: Path) -> dict[str, list[Entry]]:
    """The index of a directory of checkpoints; empty if there is none, and, with a warning, if it cannot be
    understood: each file then stands for itself, by the checksum in it."""
    try:
        return _read(directory / INDEX)
    except _DamagedError as error:
        logger.warning("%s %s: files are checked by the checksums in them", directory / INDEX, error)
        return {}


def index_fault(directory: Path) -> str | None:
    """Why the index of a directory cannot be understood; None if it can, or there is none."""
    try:
        _read(directory / INDEX)
    except _DamagedError as error:
        return str(error)
    return None


def _read(path: Path) -> dict[str, list[Entry]]:
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        index = {name: [Entry(**entry) for entry in entries] for name, entries in files.items()}
        if not all(entries and all(isinstance(e.sha256, str) for e in entries) for entries in index.values()):
            raise ValueError("an entry has no digest")
        return index
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise _DamagedError(f"cannot be understood ({error})") from error
