"""``csv``: a table for each type of record."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from trainlattice import TrackedRun, Tracker
from trainlattice_plugin_trackers.content import own_directory

_KNOWN = frozenset({"schema", "type"})  # the same in every row
_END = "\r\n"


class CsvFiles(Tracker):
    """``batch.csv``, ``epoch.csv``, ``validation.csv`` and ``event.csv``."""

    def __init__(self) -> None:
        self._directory = Path()
        self._tables: dict[str, _Table] = {}

    def start(self, run: TrackedRun) -> None:
        self._directory = own_directory(run, "csv")
        self._directory.mkdir()

    def log(self, record: Mapping[str, Any]) -> None:
        kind = record["type"]
        if kind not in self._tables:
            self._tables[kind] = _Table(self._directory / f"{kind}.csv")
        self._tables[kind].add({name: value for name, value in record.items() if name not in _KNOWN})

    def flush(self) -> None:
        for table in self._tables.values():
            table.file.flush()

    def finish(self, status: str, error: str | None) -> None:
        for table in self._tables.values():
            table.file.close()


class _Table:
    """A CSV file whose columns may become more. A value that comes under a new name writes the file anew, with an
    empty field for it in the rows before; whoever reads meanwhile finds the one or the other file, each whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] = []
        self.file: IO[str] = _opened(path, "x")

    def add(self, row: Mapping[str, Any]) -> None:
        new = [name for name in row if name not in self.columns]
        if new:
            self._widen(new)
        csv.writer(self.file).writerow([_field(row.get(name)) for name in self.columns])

    def _widen(self, new: list[str]) -> None:
        self.file.close()
        rewritten = self.path.with_name(f".{self.path.name}.tmp")
        empty = "," * len(new)
        self.columns += new
        try:
            with _opened(self.path, "r") as before, _opened(rewritten, "w") as after:
                rows = _rows(before)
                next(rows, None)
                csv.writer(after).writerow(self.columns)
                after.writelines(f"{row}{empty}{_END}" for row in rows)
            os.replace(rewritten, self.path)
        except BaseException:
            with suppress(OSError):
                rewritten.unlink(missing_ok=True)
            raise
        self.file = _opened(self.path, "a")


def _rows(file: IO[str]) -> Iterator[str]:
    """Each row as it stands there, without its end. Nothing is read into fields: Python's reader takes none that is
    longer than 131,072 characters."""
    lines: list[str] = []
    quotes = 0
    for line in file:
        lines.append(line)
        quotes += line.count('"')
        if quotes % 2 == 0:  # else this end of a line is inside of a field
            yield "".join(lines).removesuffix(_END)
            lines.clear()


def _opened(path: Path, mode: str) -> IO[str]:
    return open(path, mode, newline="", encoding="utf-8")


def _field(value: Any) -> str:
    """A float as the shortest text that reads back to the same float; a list or truth value as JSON."""
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
