"""The diagnostics channel: ``[LEVEL] logger: message``, up to INFO on stdout, warnings on stderr."""

from __future__ import annotations

import logging
import sys


class _Stream(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever the standard stream is at the time: a progress bar replaces it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.stream_name = name

    @property
    def stream(self):  # type: ignore[no-untyped-def]
        return getattr(sys, self.stream_name)

    @stream.setter
    def stream(self, value: object) -> None:
        pass


def set_up_logging(*, verbose: bool, quiet: bool = False) -> None:
    """Called by commands that train; a program that calls trainlattice sets up its own logging.

    :param quiet: leaves stdout to the command's own output.
    """
    formatter = logging.Formatter("[%(levelname)s] %(name)s: %(message)s")
    out, err = _Stream("stdout"), _Stream("stderr")
    out.addFilter(lambda record: record.levelno < logging.WARNING)
    err.setLevel(logging.WARNING)
    for handler in (out, err):
        handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [err] if quiet else [out, err]
    root.setLevel(logging.WARNING)
    logging.getLogger("trainlattice").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a stream that is full or closed is no reason for a traceback
