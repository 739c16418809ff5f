"""SIGUSR1 asks a run to save. Before and after training it finds nothing to save, and must not end the process.
Imports next to nothing: the command line takes the signal before anything else."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SAVE = getattr(signal, "SIGUSR1", None)  # Windows has none


@contextmanager
def answered() -> Iterator[None]:
    """Inside, a request that nobody else takes is answered with a line on stderr; afterwards its handler is as it
    was. One that somebody handles, or ignores, stays theirs. Outside of the main thread Python lets nobody handle
    signals."""
    if (
        _SAVE is None
        or threading.current_thread() is not threading.main_thread()
        or signal.getsignal(_SAVE) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(_SAVE, _answer)
    try:
        yield
    finally:
        signal.signal(_SAVE, signal.SIG_DFL)


def _answer(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):  # nobody listens
        os.write(2, b"SIGUSR1: no training is under way, so there is nothing to save\n")
