"""The records of a run: each with its place, for metrics.jsonl and for callbacks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from trainlattice.contracts.metric_records import EVENTS
from trainlattice.diagnostics.errors import TrainLatticeError
from trainlattice.training.callbacks import on_host
from trainlattice.training.telling import FirstError
from trainlattice.training.validation import keeping_rng

if TYPE_CHECKING:
    from trainlattice.training.callbacks import RecordName
    from trainlattice.training.trainer import Trainer


class RecordSink(Protocol):
    """Where metric records go."""

    def write(self, record: Mapping[str, Any]) -> None: ...

    def flush(self) -> None:
        """Every record written so far is on disk when this returns."""
        ...


class Recorder:
    """Says of each record in which epoch and after which step it was made.

    :param observers: ``log_metrics`` of the callbacks.
    """

    def __init__(self, trainer: Trainer, sink: RecordSink, observers: Iterable[Callable[..., None]]) -> None:
        self.trainer = trainer
        self.sink = sink
        self.observers = list(observers)
        self.observed = False
        """Whether callbacks are told: from on_run_start to finalize."""
        self.count = 0
        """Records that were written."""
        self._untold: list[dict[str, Any]] = []
        self._telling = False
        self._thread = threading.get_ident()
        self._of_other_threads: deque[dict[str, Any]] = deque()

    @property
    def here(self) -> tuple[int, int]:
        """Epoch and step where the run stands."""
        return self.trainer.epoch_number, self.trainer.state.global_step

    def write(self, kind: str, content: Mapping[str, Any], at: tuple[int, int] | None = None) -> None:
        """A record of a type of the schema: :meth:`put`, then :meth:`tell`.

        :param at: epoch and step that it is about, where the run has gone on since.
        """
        self.tell(self.put(kind, content, at))

    def write_measured(self, kind: RecordName, content: Mapping[str, Any]) -> None:
        """:meth:`write`, with what callbacks measure besides; what one of them raised is raised afterwards."""
        measured = self.trainer.callbacks.measured(self.trainer, kind, taken(content))
        self.write(kind, {**content, **on_host(measured.values)})
        if measured.error is not None:
            raise measured.error

    def put(self, kind: str, content: Mapping[str, Any], at: tuple[int, int] | None = None) -> dict[str, Any]:
        """Writes a record; callbacks do not know of it yet."""
        epoch, step = at or self.here
        place = {"type": kind, "epoch": epoch, "step": step}
        if not place.keys().isdisjoint(content):
            taken = ", ".join(sorted(place.keys() & content.keys()))
            raise TrainLatticeError(f"a metric cannot be called {taken}: a record says so of itself")
        while self._of_other_threads:
            self._write(self._of_other_threads.popleft())
        record = {**place, **content}
        self._write(record)
        return record

    def _write(self, record: Mapping[str, Any]) -> None:
        self.sink.write(record)
        self.count += 1

    def put_aside(self, kind: str, content: Mapping[str, Any]) -> None:
        """Writes a record of which callbacks are told before the next one: it may come at any point, also in the
        middle of a step. What comes of telling them is written, and told to nobody. One that comes from another
        thread is written before the next one, and told to nobody either: only this thread writes."""
        if threading.get_ident() != self._thread:
            epoch, step = self.here
            self._of_other_threads.append({"type": kind, "epoch": epoch, "step": step, **content})
            return
        record = self.put(kind, content)
        if self.observed and not self._telling:
            self._untold.append(record)

    def tell(self, record: Mapping[str, Any]) -> None:
        """Shows a record to the callbacks, after those that were put aside."""
        aside, self._untold = self._untold, []
        if not self.observed:
            return
        self._telling, told = True, FirstError()
        try:
            for one in (*aside, record):
                # An event may come at other moments in a run that is resumed: what is drawn then is nobody's.
                with keeping_rng() if one["type"] == "event" else nullcontext():
                    told.call(self.observers, self.trainer, one)
        finally:
            self._telling = False
        told.raise_it()

    def event(self, event: str, at: tuple[int, int] | None = None, **details: Any) -> None:
        """
        :raises ValueError: for an event that the schema of records does not have.
        """
        if event not in EVENTS:
            raise ValueError(f"there is no event {event!r}; events: {', '.join(EVENTS)}")
        self.write("event", {"event": event, **details}, at)


def taken(content: Iterable[str]) -> set[str]:
    """Names of a record that nothing else can have: its content's, and those that every record has."""
    return {"type", "epoch", "step", "schema", "time", "nonfinite", *content}
