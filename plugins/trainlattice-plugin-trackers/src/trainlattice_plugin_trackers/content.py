"""What of a record and of a configuration a tracker shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainlattice import TrackedRun

_PLACE = frozenset({"schema", "time", "step"})


def numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """``type/name`` of every number of a record that is no event. Lists, texts, and what is not finite are left
    out."""
    kind = record["type"]
    if kind == "event":
        return {}
    return {
        f"{kind}/{name}": value
        for name, value in record.items()
        if name not in _PLACE and isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def plain(config: Any) -> Any:
    """Read-only configuration as dicts and lists."""
    if isinstance(config, Mapping):
        return {key: plain(value) for key, value in config.items()}
    return [plain(value) for value in config] if isinstance(config, tuple) else config


def flattened(config: Any, path: str = "") -> dict[str, Any]:
    """Every value with its dotted path: ``optimizer.lr``, ``callbacks.0.name``."""
    below = config.items() if isinstance(config, Mapping) else enumerate(config)
    flat: dict[str, Any] = {}
    for key, value in below:
        name = f"{path}.{key}" if path else str(key)
        holds_more = isinstance(value, (Mapping, tuple)) and len(value) > 0
        flat |= flattened(value, name) if holds_more else {name: plain(value)}
    return flat


def own_directory(run: TrackedRun, component: str) -> Path:
    """``RUN/csv``, or ``RUN/csv-NAME`` for one that the configuration gives a name with ``as``."""
    return run.directory / (component if run.tracker == component else f"{component}-{run.tracker}")
