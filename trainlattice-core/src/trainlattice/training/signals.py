"""SIGINT, SIGTERM and SIGUSR1: what they ask for is done between two steps."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from trainlattice.diagnostics.errors import Interruption, RunInterrupted, RunTerminated

STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM") if hasattr(signal, name))
_SAVE = getattr(signal, "SIGUSR1", None)  # Windows has none


@contextmanager
def handled(
    numbers: Iterable[int | None], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Signals go to a handler inside, and where they went before afterwards. Nothing is taken outside of the main
    thread, nor what somebody ignores (nohup)."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            # None: a handler that was not installed from Python; it could not be put back.
            if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


@contextmanager
def save_requests_answered() -> Iterator[None]:
    """Before and after training SIGUSR1 finds nothing to save, and must not end the process: where nobody else
    takes or ignores it, it is answered with a line on stderr."""
    untaken = [_SAVE] if _SAVE is not None and signal.getsignal(_SAVE) is signal.SIG_DFL else []
    answer = "SIGUSR1: no training is under way, so there is nothing to save\n"
    with handled(untaken, lambda number, frame: _tell(answer)):
        yield


class Signals:
    """Takes signals while a run is under way and holds them until the Trainer asks.

    The first SIGINT or SIGTERM asks to save and leave; a second one ends at once. SIGUSR1 asks to save and go on.
    Outside of the main thread Python lets nobody handle signals: there nothing is taken.
    """

    def __init__(self) -> None:
        self.stopping: int | None = None
        self.save = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Handlers are ours inside, and as they were afterwards. What somebody ignores (nohup) stays ignored."""
        self.stopping, self.save = None, False
        with handled((*STOPS, _SAVE), self._take):
            yield

    def _take(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if number == _SAVE:
            self.save = True
        elif self.stopping is None:
            self.stopping = number
            # Written past Python's streams: the signal may have come in the middle of a print.
            _tell(f"{name}: saving last.pt after this step and leaving; a second signal ends at once\n")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def interruption(self) -> Interruption:
        """What the Trainer raises once the checkpoint is on disk."""
        assert self.stopping is not None
        return (
            RunInterrupted("SIGINT") if self.stopping == signal.SIGINT else RunTerminated(128 + self.stopping)
        )

    def explains(self, error: BaseException) -> bool:
        """Whether a signal that asked us to stop is what an error of a loader process comes from: it may have ended
        that process too, and the system may tell of its end first. Any other error stands for itself."""
        if not is_of_loader(error):
            return False
        if self.stopping is None:
            with suppress(RuntimeError):  # torch's news of a second process
                time.sleep(0.2)
        return self.stopping is not None

    def check(self) -> None:
        """Raises the interruption if one was asked for."""
        if self.stopping is not None:
            raise self.interruption()


def is_of_loader(error: BaseException) -> bool:
    """Whether an error is what the end of a loader process leads to."""
    if isinstance(error, RuntimeError):
        return "DataLoader worker" in str(error)
    return isinstance(error, (EOFError, ConnectionError))


def _tell(text: str) -> None:
    with suppress(OSError):  # nobody listens
        os.write(2, text.encode())
