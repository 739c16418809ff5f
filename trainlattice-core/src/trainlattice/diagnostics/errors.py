"""Errors that carry an exit code. Everything that a user can cause derives from TrainLatticeError."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from trainlattice.diagnostics.diagnostic import Diagnostic, in_file_order, render_all

_PLUGIN_CODES = frozenset({"broken-plugin", "unknown-plugin", "missing-plugin"})


class TrainLatticeError(Exception):
    """An error with a message for the user (what, where, why, next step) and an exit code."""

    exit_code = 1

    def render(self, *, color: bool = False) -> str:
        """The text for a terminal."""
        return f"error: {self}"


class ConfigError(TrainLatticeError):
    """A configuration that cannot run. Holds every mistake found, in the order of the file.

    Exit code 2, or 3 if nothing but plugins is at fault.
    """

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(in_file_order(diagnostics))
        plugins_only = all(found.code in _PLUGIN_CODES for found in self.diagnostics)
        self.exit_code = PluginError.exit_code if plugins_only else UsageError.exit_code
        super().__init__(render_all(self.diagnostics, color=False))

    def render(self, *, color: bool = False) -> str:
        return render_all(self.diagnostics, color=color)


class UsageError(TrainLatticeError):
    """A command or call that cannot be carried out as given."""

    exit_code = 2


class PluginError(TrainLatticeError):
    """A plugin that is needed and cannot be used."""

    exit_code = 3


class CheckpointError(TrainLatticeError):
    """A checkpoint that is absent, damaged, foreign or not fit to be resumed from."""

    exit_code = 2


class CheckpointWriteError(TrainLatticeError):
    """A checkpoint that could not be written. Earlier ones are as they were."""


class Interruption(BaseException):
    """A signal, the end of its time or a closed console ended the run between two steps, after its checkpoint was
    written."""


class RunInterrupted(Interruption, KeyboardInterrupt):
    """SIGINT."""


class RunTerminated(Interruption, SystemExit):
    """SIGTERM; ``code`` is 128 + its number, and the text is its name."""

    def __init__(self, code: int) -> None:
        super().__init__(signal.Signals(code - 128).name)
        self.code = code


class WallTimeReached(Interruption, SystemExit):
    """``trainer.max_wall_time_sec`` is over; ``code`` is 13."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.code = 13


class ConsoleClosed(Interruption, SystemExit):
    """Whoever read the standard output is gone; ``code`` is 1."""

    def __init__(self) -> None:
        super().__init__("standard output was closed")
        self.code = 1


class TrackerError(TrainLatticeError):
    """A tracker with ``on_error: fail`` has failed."""


class OutOfMemoryError(TrainLatticeError):
    """The device has not enough memory for a step."""

    exit_code = 10


class CompileError(TrainLatticeError):
    """torch.compile failed."""

    exit_code = 11


class NonFiniteError(TrainLatticeError):
    """A training loss, gradient or weight became NaN or infinite."""

    exit_code = 12


def exit_code_of(error: BaseException | None) -> int:
    """With what a command ends that this error ended, or nothing; docs/exit-codes.md lists them."""
    if error is None:
        return 0
    if isinstance(error, TrainLatticeError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 1
