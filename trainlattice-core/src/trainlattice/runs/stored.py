"""Reads what a run left, however little of it there is. Torch-free, and without checking configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trainlattice.diagnostics.errors import ConfigError
from trainlattice.runs.directory import RunDirectory


def stored_config(run: RunDirectory) -> dict[str, Any] | None:
    """The resolved configuration of a run as plain data; None if there is none that can be read."""
    from trainlattice.diagnostics.nodes import to_plain
    from trainlattice.diagnostics.yaml_reader import read_file

    try:
        plain = to_plain(read_file(run.config)[0])
    except ConfigError:
        return None
    return plain if isinstance(plain, dict) else None


def stored_json(path: Path) -> dict[str, Any] | None:
    """A file of JSON that holds a mapping; None if there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
