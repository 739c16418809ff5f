"""One mistake in a configuration, and how it is shown."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from trainlattice.diagnostics.source import Mark

MOST_SHOWN = 20
_RED, _YELLOW, _BLUE, _BOLD, _RESET = "\x1b[31m", "\x1b[33m", "\x1b[34m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class Diagnostic:
    """A mistake: what, where, why and the next step.

    :param code: a short stable name of the kind of mistake, such as ``unknown-option``.
    :param message: one line.
    :param mark: where it stands; None if it concerns no single place.
    :param path: dotted path into the configuration.
    :param suggestion: shown beside the caret.
    :param notes: further lines below the excerpt.
    :param related: other places that belong to it, each with a label.
    :param whole_file: the file as such cannot be read; shown on one line.
    """

    code: str
    message: str
    mark: Mark | None = None
    path: str = ""
    suggestion: str | None = None
    notes: tuple[str, ...] = ()
    related: tuple[tuple[str, Mark], ...] = ()
    whole_file: bool = False
    level: Literal["error", "warning"] = "error"

    def render(self, *, color: bool = False) -> str:
        """The text for a terminal: message, place, excerpt with a caret, suggestion, notes."""
        paint = _painter(color)
        tint = _RED if self.level == "error" else _YELLOW
        head = paint(f"{self.level}[{self.code}]", _BOLD + tint)
        message, path = printable(self.message), printable(self.path)
        suggestion = printable(self.suggestion) if self.suggestion else None
        if self.whole_file:
            place = printable(f"{self.mark}: ") if self.mark else ""
            return f"{head}: {place}{message}"
        lines = [f"{head}: {paint(message, _BOLD)}"]
        if self.mark is not None and self.mark.source.lines:
            place = printable(f"{self.mark}   " if path else f"{self.mark}")
            lines.append(f"  {paint('-->', _BLUE)} {place}{path}")
            lines += _excerpt(self.mark, suggestion, paint, tint)
        else:
            if path:
                lines.append(f"  {paint('-->', _BLUE)} {path}")
            if suggestion:
                lines.append(f"  {suggestion}")
        for label, mark in self.related:
            lines.append(printable(f"  {label}: {mark}   {_clip(mark)[1].strip()}"))
        lines += [f"  {printable(note)}" for note in self.notes]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same as plain data, for ``--json``."""
        return {
            "code": self.code,
            "level": self.level,
            "message": self.message,
            "file": self.mark.source.name if self.mark else None,
            "line": self.mark.line if self.mark else None,
            "column": self.mark.column if self.mark else None,
            "path": self.path,
            "suggestion": self.suggestion,
            "notes": list(self.notes),
            "related": [
                {"label": label, "file": mark.source.name, "line": mark.line, "column": mark.column}
                for label, mark in self.related
            ],
        }


def in_file_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sorted by file, line and column; those without a place come last."""
    last = (sys.maxsize, 0, 0)
    return sorted(diagnostics, key=lambda d: d.mark.sort_key if d.mark else last)


def render_all(diagnostics: Sequence[Diagnostic], *, color: bool = False) -> str:
    """All of them, a blank line between two, at most 20 shown."""
    blocks = [d.render(color=color) for d in diagnostics[:MOST_SHOWN]]
    if len(diagnostics) > MOST_SHOWN:
        blocks.append(f"... and {len(diagnostics) - MOST_SHOWN} more")
    return "\n\n".join(blocks)


def wants_color(stream: TextIO | None) -> bool:
    """Colour only on a terminal, and never where NO_COLOR is set."""
    return stream is not None and stream.isatty() and not os.environ.get("NO_COLOR")


def _painter(color: bool) -> Any:
    return (lambda text, code: f"{code}{text}{_RESET}") if color else (lambda text, code: text)


def _excerpt(mark: Mark, suggestion: str | None, paint: Any, tint: str) -> list[str]:
    if not mark.text:
        return [f"  {suggestion}"] if suggestion else []
    start, text = _clip(mark)
    gutter = max(4, len(str(mark.line)) + 1)
    lines = []
    above = mark.source.lines[mark.line - 2] if mark.line >= 2 else ""
    if above.strip() and start == 0:
        lines.append(f"{mark.line - 1:>{gutter}} | {printable(above[:_WIDEST])}")
    lines.append(f"{mark.line:>{gutter}} | {printable(text)}")
    before, under = text[: mark.column - 1 - start], text[mark.column - 1 - start :][: mark.width]
    # Wide characters take two cells: the caret is placed by cells, the column counts characters.
    caret = "^" * max(1, _cells(under))
    tail = f" {suggestion}" if suggestion else ""
    lines.append(f"{'':>{gutter}} | {' ' * _cells(before)}{paint(caret + tail, tint)}")
    return lines


_WIDEST = 160


def _clip(mark: Mark) -> tuple[int, str]:
    """The part of a very long line that holds the place, and where it begins."""
    if len(mark.text) <= _WIDEST:
        return 0, mark.text
    start = max(0, mark.column - 1 - 40)
    return start, mark.text[start : start + _WIDEST]


def printable(text: str) -> str:
    """White space as one space, control characters as a mark: what a file holds must not steer the
    terminal."""
    return "".join(" " if c.isspace() else c if c.isprintable() else "\ufffd" for c in text)


def _cells(text: str) -> int:
    """Columns of a terminal that a text takes, as :func:`printable` shows it."""
    return sum(
        0 if unicodedata.category(c) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in printable(text)
    )
