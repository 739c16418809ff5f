"""Columns of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from trainlattice.diagnostics.diagnostic import printable


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Each column as wide as its widest cell."""
    table = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(indent + line.rstrip())


def human_size(count: int) -> str:
    """``5.2 KiB``"""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
