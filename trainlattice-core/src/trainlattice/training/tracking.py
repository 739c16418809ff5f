"""The trackers of a run: each on a thread of its own. Training hands records over and never waits for one."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NamedTuple

from trainlattice.contracts.settings import TrackerSettings
from trainlattice.contracts.tracking import TRACKER_THREADS, TrackedRun, Tracker
from trainlattice.diagnostics.errors import TrackerError, TrainLatticeError
from trainlattice.training.signals import STOPS, handled
from trainlattice.training.validation import keeping_rng

logger = logging.getLogger(__name__)

MOST_WAITING = 100_000
"""Records that a tracker may be behind. One that is further behind counts as failed: a run may write for weeks to
one that hangs, and memory has an end."""

_FLUSH_RECORDS, _FLUSH_SECONDS = 1000, 1.0
_SILENT_SECONDS = 1.0
"""A wait that lasts longer is told of."""
_ON = "; the run goes on without it"
_LATE = ", and is not exactly repeatable if it still draws random numbers"
_TAKEN_BY_RUN = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)}


class _End(NamedTuple):
    status: str
    error: str | None


class Tracking:
    """All trackers of a run.

    :param trackers: name, tracker, settings.
    """

    def __init__(self, trackers: Sequence[tuple[str, Tracker, TrackerSettings]] = ()) -> None:
        self._workers = [_Worker(*named) for named in trackers]

    def start(self, run: TrackedRun) -> None:
        """Starts all at once and waits until each is ready or has had its time. Random numbers that they draw
        meanwhile cost the run none.

        :raises TrackerError: for one that could not start and says ``on_error: fail``.
        """
        if not self._workers:
            return
        with keeping_rng():
            wait = _Wait()
            for worker in self._workers:
                worker.start(run)
            for worker in self._workers:
                worker.await_start(wait)
        self.check()

    def put(self, record: Mapping[str, Any]) -> None:
        """Hands a record to each; it must not change any more."""
        for worker in self._workers:
            worker.put(record)

    def check(self) -> None:
        """Between two steps: tells of what has failed since.

        :raises TrackerError: for one that says ``on_error: fail``.
        """
        for worker in self._workers:
            if worker.failure is not None and not worker.reported:
                error = worker.report(_ON + _LATE if worker.is_late else _ON)
                if error is not None:
                    raise error

    def finish(self, status: str, error: str | None = None) -> TrackerError | None:
        """The run is over: waits until all is taken and closed, the time is up, or SIGINT or SIGTERM ends the wait
        (and nothing else). What has failed is told of.

        :returns: the error of the first that says ``on_error: fail``.
        """
        first = None
        wait = _Wait()
        with handled(STOPS if self._workers else (), wait.end):
            for worker in self._workers:
                worker.end(_End(status, error))
            for worker in self._workers:
                worker.await_end(wait)
                found = worker.report() if worker.failure is not None and not worker.reported else None
                first = first or found
        return first


class _Wait:
    """A wait of the run for its trackers, which begins now for all of them."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.ended_by: str | None = None
        """The signal that ended it."""

    def end(self, number: int, frame: FrameType | None) -> None:
        """As a handler of signals."""
        self.ended_by = signal.Signals(number).name

    def is_met(self, event: threading.Event, seconds: float, what: str) -> bool:
        """Whether something comes within so many seconds of the beginning."""
        told = False
        while not event.wait(max(0.0, min(0.1, self._began + seconds - time.monotonic()))):
            waited = time.monotonic() - self._began
            if self.ended_by or waited >= seconds:
                return event.is_set()
            if not told and waited >= _SILENT_SECONDS:
                logger.info("waiting for %s (at most %g s)", what, seconds)
                told = True
        return True


class _Worker:
    """One tracker, its thread, and the records that it has not taken yet."""

    def __init__(self, name: str, tracker: Tracker, settings: TrackerSettings) -> None:
        self.name, self.tracker, self.settings = name, tracker, settings
        self.failure: str | None = None
        """What went wrong; no record comes to the tracker from then on."""
        self.raised: BaseException | None = None
        self.reported = self.is_late = False
        self._queue: SimpleQueue[Mapping[str, Any] | _End] = SimpleQueue()
        self._put = self._taken = self._flushed = 0
        self._flush_at = 0.0
        self._thread: threading.Thread | None = None
        self._ready, self._over = threading.Event(), threading.Event()
        self._given_up = False
        """It hangs, or is too far behind: nothing is waited for any more."""

    # --- on the thread of the run ---

    def start(self, run: TrackedRun) -> None:
        """A daemon, so that one that hangs keeps no process alive."""
        self._thread = threading.Thread(
            target=self._work,
            args=(replace(run, tracker=self.name),),
            name=TRACKER_THREADS + self.name,
            daemon=True,
        )
        with (
            _signals_blocked()
        ):  # a thread inherits it: signals are to interrupt what the run's own thread waits for
            self._thread.start()

    def put(self, record: Mapping[str, Any]) -> None:
        if self.failure is not None:
            return
        if self._put - self._taken >= MOST_WAITING:
            self._gives_up(f"is {MOST_WAITING:,} records behind")
            return
        self._put += 1
        self._queue.put(record)

    def end(self, end: _End) -> None:
        self._queue.put(end)

    def await_start(self, wait: _Wait) -> None:
        if not wait.is_met(self._ready, self.settings.timeout_sec, f"tracker {self.name!r} to start"):
            self.is_late = True
            self._gives_up(f"did not start within {self.settings.timeout_sec:g} s")

    def await_end(self, wait: _Wait) -> None:
        """One that was given up gets no more time; one that failed gets it to close what it opened."""
        if self._thread is None or self._given_up:
            return
        seconds = self.settings.timeout_sec
        if not wait.is_met(self._over, seconds, f"tracker {self.name!r}") and self.failure is None:
            left = self._put - self._taken
            rest = f"{left} of {self._put} records were not taken" if left else "all records were taken"
            how = f"did not finish within {seconds:g} s"
            if wait.ended_by:
                how = f"had not finished when {wait.ended_by} ended the wait"
            self._gives_up(f"{how}: {rest}")

    def report(self, more: str = "") -> TrackerError | None:
        """Tells of the failure, once: a warning, or the error of one that says ``on_error: fail``."""
        self.reported = True
        text = f"tracker {self.name!r} {self.failure}"
        if self.settings.on_error == "fail":
            error = TrackerError(text)
            error.__cause__ = self.raised
            return error
        logger.warning("%s%s", text, more)
        return None

    def _gives_up(self, failure: str) -> None:
        self._given_up = True
        self.failure = self.failure or failure

    # --- on the tracker's thread ---

    def _work(self, run: TrackedRun) -> None:
        try:
            self.tracker.start(run)
        except BaseException as error:  # also SystemExit: it would end this thread alone, and in silence
            self._fails("could not start", error)
        self._ready.set()
        while not isinstance(item := self._next(), _End):
            if self.failure is None:
                self._take(item)
        self._flush()
        try:
            self.tracker.finish(item.status, item.error)
        except BaseException as error:
            self._fails("could not finish", error)
        self._over.set()

    def _next(self) -> Mapping[str, Any] | _End:
        """Waits for it; meanwhile what is kept back goes out when its time has come."""
        while self._taken > self._flushed:
            with suppress(Empty):
                return self._queue.get(timeout=max(0.0, self._flush_at - time.monotonic()))
            self._flush()
        return self._queue.get()

    def _take(self, record: Mapping[str, Any]) -> None:
        if self._taken == self._flushed:
            self._flush_at = time.monotonic() + _FLUSH_SECONDS
        try:
            self.tracker.log(record)
            self._taken += 1
        except BaseException as error:
            self._fails("failed", error)
            return
        if self._taken - self._flushed >= _FLUSH_RECORDS or time.monotonic() >= self._flush_at:
            self._flush()

    def _flush(self) -> None:
        self._flushed = self._taken
        if self.failure is not None:
            return
        try:
            self.tracker.flush()
        except BaseException as error:
            self._fails("failed", error)

    def _fails(self, what: str, error: BaseException) -> None:
        """The first failure counts; the rest follows from it."""
        if self.failure is None:
            self.raised = error
            text = " ".join(str(error).split())
            known = isinstance(error, TrainLatticeError) and text
            self.failure = f"{what}: {text if known else f'{type(error).__name__}: {text}'}"


@contextmanager
def _signals_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN_BY_RUN)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
