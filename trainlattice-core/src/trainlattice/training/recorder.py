"""The records of a run: each with its place, for metrics.jsonl and for callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
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

    def write(self, kind: str, content: Mapping[str, Any]) -> None:
        """A record of a type of the schema."""
        place = {"epoch": self.trainer.epoch_number, "step": self.trainer.state.global_step}
        record = {"type": kind, **place, **content}
        self.sink.write(record)
        if self.observed:
            for call in self.observers:
                call(self.trainer, record)

    def event(self, event: str, **details: Any) -> None:
        self.write("event", {"event": event, **details})
