"""The index of a directory of checkpoints: the digests that its files must have. Torch-free."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from trainlattice.diagnostics.errors import CheckpointError

INDEX = "index.json"


@dataclass(frozen=True)
class Entry:
    """What the index says about one version of a file."""

    sha256: str
    size: int
    epoch: int
    global_step: int


def read_index(directory: Path) -> dict[str, list[Entry]]:
    """The index of a directory of checkpoints; empty if there is none.

    :raises CheckpointError: if it cannot be understood.
    """
    path = directory / INDEX
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        index = {name: [Entry(**entry) for entry in entries] for name, entries in files.items()}
        if not all(entries and all(isinstance(e.sha256, str) for e in entries) for entries in index.values()):
            raise ValueError("an entry has no digest")
        return index
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be understood ({error}); without it, checkpoints are checked by the checksums in them"
        ) from None
