"""``metrics.jsonl`` and the same records as lines on the console. Torch-free."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from trainlattice.contracts.metric_records import RECORDS_SCHEMA
from trainlattice.contracts.tracking import TRACKER_THREADS
from trainlattice.diagnostics.errors import TrainLatticeError

if TYPE_CHECKING:
    from trainlattice.training.trainer import Trainer

_DIGITS = {"lr": ".3g", "max_memory_mb": ".0f"}
# What a line on the console leaves to the file, beside names with a slash.
_QUIET = frozenset({"epoch", "step", "steps_per_sec", "epoch_seconds", "data_seconds"})


logger = logging.getLogger(__name__)


class RunRecords:
    """Appends records to a file, one strict JSON object a line, and shows them.

    A number that is not finite is written as null, and its name stands under ``nonfinite``.

    :param follower: takes each record as it is written.
    """

    def __init__(
        self,
        path: Path,
        *,
        epochs: int | None,
        console: bool = True,
        follower: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self._path = path
        with self._naming_the_file():
            self._file = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115  closed on exit
        self._epochs = epochs
        self._console = console
        self.when_closed: Callable[[], None] = lambda: None
        """Called once if the reader of the standard output is gone."""
        self._follower = follower

    def write(self, record: Mapping[str, Any]) -> None:
        strict = {key: finite(value) for key, value in record.items()}
        nonfinite = [key for key, value in record.items() if strict[key] is not value]
        line: dict[str, Any] = {"schema": RECORDS_SCHEMA, "time": round(time.time(), 3), **strict}
        if nonfinite:
            line["nonfinite"] = nonfinite
        with self._naming_the_file():
            self._file.write(json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n")
        if self._follower is not None:
            self._follower(MappingProxyType(line))
        if self._console and _is_shown(record):
            self._show(console_line(record, self._epochs))

    def _show(self, line: str) -> None:
        """A console that is full or absent is no reason to stop; whoever closes it means to."""
        try:
            print(line, flush=True)
        except BrokenPipeError:
            self._console = False
            logger.warning("standard output was closed: saving last.pt after this step and leaving")
            self.when_closed()
        except (OSError, ValueError) as error:
            self._console = False
            logger.warning("standard output takes no more (%s); the records go on in %s", error, self._path)

    def flush(self) -> None:
        """Every record is on disk when this returns."""
        with self._naming_the_file():
            self._file.flush()
            os.fsync(self._file.fileno())

    def __enter__(self) -> RunRecords:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._file.close()
        except OSError as failure:
            if error is None:
                raise TrainLatticeError(f"{self._path} could not be written: {failure.strerror}") from None
            logger.warning("%s lacks its last records: %s", self._path, failure.strerror)

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise TrainLatticeError(
                f"{self._path} could not be written: {failure.strerror or failure}"
            ) from failure


def finite(value: Any) -> Any:
    """The same object, or where it is or holds numbers that are not finite, one with None in their places."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        strict = [finite(item) for item in value]
        return value if all(a is b for a, b in zip(strict, value, strict=True)) else strict
    return value


class WarningRecords(logging.Handler):
    """Writes log records from WARNING on as events of the run."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(logging.WARNING)
        self.trainer = trainer
        self._recording = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._recording:  # writing the record led to a warning in turn
            return
        # Nobody but the thread of the run writes its records.
        if (record.threadName or "").startswith(TRACKER_THREADS):
            return
        self._recording = True
        try:
            content = {"event": "warning", "message": record.getMessage()}
            self.trainer.recorder.put_aside("event", content)
        except Exception:  # a full disk, a message that cannot be formatted: as other handlers of the log do
            self.handleError(record)
        finally:
            self._recording = False


@contextmanager
def recording_warnings(trainer: Trainer) -> Iterator[None]:
    """While a run is under way, what the log shows as a warning stands in its records too."""
    handler = WarningRecords(trainer)
    loggers = [logging.getLogger(name) for name in ("trainlattice", "py.warnings")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _is_shown(record: Mapping[str, Any]) -> bool:
    """An epoch's line holds its validation; on a terminal the progress bar shows what a step's record holds."""
    kind = record["type"]
    if kind == "batch":
        return sys.stdout is not None and not sys.stdout.isatty()
    return bool(kind == "epoch" or (kind == "validation" and record["at"] != "epoch"))


def console_line(record: Mapping[str, Any], epochs: int | None) -> str:
    """``epoch 1/5  step 20  loss 0.123  lr 0.001``"""
    width = len(str(epochs)) if epochs is not None else 0
    of = f"/{epochs}" if epochs is not None else ""
    parts = [f"epoch {record['epoch']:>{width}}{of}", f"step {record['step']}"]
    for name, value in record.items():
        if name not in _QUIET and "/" not in name and isinstance(value, (int, float)):
            short = "samples/s" if name.endswith("samples_per_sec") else name
            digits = ".0f" if short == "samples/s" else _DIGITS.get(name, ".4f")
            parts.append(f"{short} {format(value, digits)}")
    return "  ".join(parts)
