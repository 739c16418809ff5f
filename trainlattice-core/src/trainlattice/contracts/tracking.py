"""What a tracker must be: it takes the records of a run to where somebody looks at them. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACKER_THREADS = "trainlattice-tracker-"
"""What the names of the threads begin with on which trackers work."""


@dataclass(frozen=True)
class TrackedRun:
    """A run that begins, as a tracker is told of it. Plain data.

    :param tracker: the name of the tracker itself: ``as``, or its component's name.
    :param directory: the run directory.
    :param name: experiment.name.
    :param seed: experiment.seed.
    :param config: the resolved configuration: mappings and tuples that cannot be changed.
    :param resumed_from: the checkpoint that it continues, or None.
    :param continues: the directories of the runs before it, the oldest first, as far as they are there.
    """

    tracker: str
    directory: Path
    name: str
    seed: int
    config: Mapping[str, Any]
    resumed_from: Path | None = None
    continues: tuple[Path, ...] = ()


class Tracker:
    """Base class of trackers: override what you need.

    Its constructor or target is called while the run is built, and refuses what cannot work (``OptionError``).
    All else is called on a thread of its own, one call after the other. What a method raises is reported once, and
    no further record comes. No method draws from the global random generators of Python, NumPy or torch: training
    does meanwhile. What ``start`` draws is undone, but not once it has outlived ``timeout_sec``.
    """

    def start(self, run: TrackedRun) -> None:
        """The run directory exists, no step has been taken. The run waits for this, ``timeout_sec`` at most."""

    def log(self, record: Mapping[str, Any]) -> None:
        """A record, as the line of metrics.jsonl holds it. In order; those from before ``start`` come after it."""

    def flush(self) -> None:
        """What ``log`` kept back goes out: a second after the first record since the last time, after 1000 of them,
        and before ``finish``."""

    def finish(self, status: str, error: str | None) -> None:
        """The run is over; called once, last, also after an exception of ``start`` or ``log``, to close what they
        opened. The run waits for this and for what was still to be logged, ``timeout_sec`` at most.

        :param status: ``finished``, ``failed`` or ``interrupted``.
        :param error: what ended it, or None.
        """
