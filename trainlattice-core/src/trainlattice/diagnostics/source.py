"""Where a piece of configuration stands: a text with a name, and a place in it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, eq=False)
class Source:
    """A text that configuration was read from.

    :param name: what a person is shown, such as ``configs/a.yaml`` or ``--set``.
    :param lines: its lines without line ends.
    :param path: the file, or None for text from the command line or from Python.
    """

    name: str
    lines: tuple[str, ...]
    path: Path | None = None


@dataclass(frozen=True)
class Mark:
    """A place in a source: 1-based line and column, counted in characters, and a width for the caret."""

    source: Source
    line: int
    column: int
    width: int = 1
    order: int = field(default=0, compare=False)
    """Rank of the source among those of one configuration, for sorting."""

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"

    @property
    def text(self) -> str:
        """The whole line, or an empty string at the end of the text."""
        return self.source.lines[self.line - 1] if 0 < self.line <= len(self.source.lines) else ""

    @property
    def sort_key(self) -> tuple[int, int, int]:
        return (self.order, self.line, self.column)


def display_path(path: Path) -> str:
    """The path as a person would type it: relative to the current directory where it lies below it."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):  # another drive on Windows; a current directory that was deleted
        return str(path)
    if relative.startswith("-"):  # would be taken for an option
        return os.path.join(os.curdir, relative)
    return str(path) if relative.startswith(os.pardir) else relative
