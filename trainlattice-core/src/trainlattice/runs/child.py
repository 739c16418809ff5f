"""Runs in processes of their own, which can be killed, and the directory in which they leave what they do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

_POLL_SECONDS = 0.005


class Child:
    """``python -m MODULE ...`` in a process group of its own: Ctrl-C in the terminal reaches only its parent, and a
    kill takes its loader processes too. As a context manager it never outlives its block.

    :param log: what it prints is added to this file.
    """

    def __init__(
        self,
        arguments: Sequence[str | os.PathLike[str]],
        log: Path,
        *,
        module: str = "trainlattice",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *(os.fspath(argument) for argument in arguments)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.kill()

    def wait(self) -> int:
        """The exit code; negative for a signal."""
        return self._process.wait()

    def run_directory(self, runs_dir: Path) -> Path | None:
        """Waits until a run directory appears in ``runs_dir``; None if the process ends without one."""
        while True:
            ended = self._process.poll() is not None
            found = run_in(runs_dir)
            if found is not None or ended:
                return found
            time.sleep(_POLL_SECONDS)

    def killed_after(self, seconds: float) -> bool:
        """Kills the process after this time; whether it was still there."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return False
        return self.kill() < 0

    def kill(self) -> int:
        """SIGKILL; the exit code."""
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        return self._process.wait()


def run_in(runs_dir: Path) -> Path | None:
    """The one run directory that a process made."""
    try:
        return next((p for p in runs_dir.iterdir() if not p.name.startswith(".")), None)
    except FileNotFoundError:
        return None


def runs_dir_is(directory: Path) -> str:
    """For ``--set``: a string of YAML, whatever is in it."""
    quoted = str(directory).replace("'", "''")
    return f"experiment.runs_dir='{quoted}'"


WITHOUT_TRACKERS = "trackers=[]"
"""For ``--set``: what only looks at a run, or proves something of it, is reported nowhere."""


def last_lines(log: Path, most: int = 15) -> str:
    """The end of a log, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    return "\n".join(f"  {line}" for line in lines[-most:])


@contextmanager
def working_directory(name: str) -> Iterator[Path]:
    """A temporary directory. It is for its user to remove, by :func:`remove`; an interruption removes it, and so
    does an error if nothing lies in it.

    SIGTERM ends the block as Ctrl-C does, so that no child is left behind.
    """
    directory = Path(tempfile.mkdtemp(prefix=f"trainlattice-{name}-")).resolve()
    try:
        with _sigterm_raises():
            yield directory
    except (KeyboardInterrupt, SystemExit):
        remove(directory)
        raise
    except Exception:
        with suppress(OSError):
            directory.rmdir()
        raise


def remove(directory: Path) -> None:
    """Removes a directory, as far as that is possible."""
    shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
