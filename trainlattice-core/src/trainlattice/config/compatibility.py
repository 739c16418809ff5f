"""What may change between a checkpoint and the configuration that resumes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

RUNTIME_ONLY = frozenset(
    {
        "experiment.name",
        "experiment.runs_dir",
        "trainer.device",
        "trainer.log_every",
        "trainer.epochs",
        "trainer.max_steps",
        "trainer.max_samples",
        "trainer.max_wall_time_sec",
        "trainer.early_stopping",
        "trainer.nonfinite",
        "trainer.nonfinite_budget",
        "dataset.num_workers",
        "dataset.start_method",
        "callbacks",
        "trackers",
        "checkpoint",
        "plugins.local",
        "plugins.require",
    }
)
"""Values that do not change what a step computes. Everything else must match the checkpoint."""


@dataclass(frozen=True)
class Change:
    """One value that differs.

    :param path: dotted.
    :param saved: value in the checkpoint; None if it is absent.
    :param given: value in the configuration.
    :param allowed: whether a run may be resumed with it.
    """

    path: str
    saved: Any
    given: Any
    allowed: bool

    def __str__(self) -> str:
        return f"{self.path}: {self.saved!r} in the checkpoint, {self.given!r} now"


def changes(saved: dict[str, Any], given: dict[str, Any]) -> list[Change]:
    """All values that differ between two resolved configurations, in the order of the given one."""
    return [
        Change(path, before, now, allowed=_is_runtime_only(path))
        for path, before, now in _differences(saved, given, "")
    ]


def _is_runtime_only(path: str) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:n]) in RUNTIME_ONLY for n in range(1, len(parts) + 1))


def _differences(saved: Any, given: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(saved, dict) and isinstance(given, dict):
        for key in dict.fromkeys((*given, *saved)):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(saved.get(key), given.get(key), below)
    elif type(saved) is not type(given) or saved != given:
        yield path, saved, given
