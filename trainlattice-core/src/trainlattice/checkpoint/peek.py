"""How far the run of a checkpoint had come, read from the file without torch and without its tensors.

Of the pickle in the file only plain values are made; whatever else it names becomes an empty placeholder, so
that nothing in it is executed. Its bytes are not verified.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BYTES = 256 * 1024 * 1024  # of the pickle, which holds everything but the tensors


@dataclass(frozen=True)
class Peek:
    """What a checkpoint says about itself.

    :param trainer: progress: epoch, global_step, best_metric, and so on.
    """

    format: Any
    kind: str
    trainer: dict[str, Any] = field(default_factory=dict)

    @property
    def epoch(self) -> int:
        """Completed epochs."""
        epoch: int = self.trainer["epoch"]
        return epoch

    @property
    def global_step(self) -> int:
        step: int = self.trainer["global_step"]
        return step


def peek(path: Path) -> Peek | None:
    """None if the file cannot be read as a checkpoint, for whatever reason."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(m for m in archive.infolist() if m.filename.endswith("/data.pkl"))
            if member.file_size > MOST_BYTES:
                return None
            with archive.open(member) as file:
                file._expected_crc = None  # type: ignore[attr-defined]  # torch was told to compute none
                data = _Plain(io.BytesIO(file.read())).load()
        trainer = dict(data["trainer"])
        if not all(type(trainer[name]) is int for name in ("epoch", "global_step")):
            return None
        return Peek(data["format"], str(data["kind"]), trainer)
    except Exception:  # a damaged pickle raises whatever its bytes lead to
        return None


class _Placeholder:
    """Stands for anything that is not plain, and takes whatever the pickle does to it."""

    def __new__(cls, *arguments: Any, **keywords: Any) -> _Placeholder:
        return super().__new__(cls)

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return _Placeholder

    def persistent_load(self, reference: Any) -> Any:
        return None
