"""Which files a checkpoint is written to, and which earlier ones it makes superfluous."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeGuard

from trainlattice.checkpoint.names import BEST, LAST, epoch_name, step_in, step_name
from trainlattice.contracts.settings import CheckpointSettings
from trainlattice.training.stopping import Direction


@dataclass
class Retention:
    """The numbered checkpoints of one run directory.

    ``last.pt`` and ``best.pt`` are always there and count as the newest and the best one; where more than one is
    kept, each also has a numbered name.
    """

    settings: CheckpointSettings
    direction: Direction
    recent: list[str] = field(default_factory=list)
    best: list[tuple[float, str]] = field(default_factory=list)

    def last(self, step: int, ended_epoch: int | None) -> list[str]:
        """Names of a checkpoint that is the newest.

        :param ended_epoch: the epoch that it ends, or None in the middle of one.
        """
        names = [LAST]
        if self.settings.keep_last != 1:
            names.append(step_name(step))
        every = self.settings.keep_every_epochs
        if every is not None and ended_epoch is not None and ended_epoch % every == 0:
            names.append(epoch_name(ended_epoch))
        return names

    def ranked(self, value: float, step: int, *, improved: bool) -> list[str]:
        """Names of a checkpoint that was validated: none if it is not among the best."""
        keep = self.settings.keep_best
        names = [BEST] if improved and keep else []
        if self._numbers_best(value) and self._rank(value) < keep:
            names.append(step_name(step))
        return names

    def written(self, names: list[str], value: float | None) -> list[str]:
        """Takes note of what is durable now; the names of files that are no longer kept.

        :param value: of the monitored metric, if the checkpoint was ranked.
        """
        before = {*self.recent, *(name for _, name in self.best)}
        for name in names:
            if step_in(name) is None:
                continue
            if LAST in names and name not in self.recent and self.settings.keep_last != 1:
                self.recent.append(name)
            if self._numbers_best(value) and name not in [held for _, held in self.best]:
                self.best.insert(self._rank(value), (value, name))
        if self.settings.keep_last is not None:
            del self.recent[: -self.settings.keep_last]
        del self.best[self.settings.keep_best :]
        kept = {*self.recent, *(name for _, name in self.best)}
        return sorted((before | {n for n in names if step_in(n) is not None}) - kept)

    def _numbers_best(self, value: float | None) -> TypeGuard[float]:
        """Where one is kept, best.pt alone stands for it."""
        return self.settings.keep_best > 1 and value is not None and math.isfinite(value)

    def _rank(self, value: float) -> int:
        """How many held values are better; an equal one that came first is."""
        if self.direction == "min":
            return sum(held <= value for held, _ in self.best)
        return sum(held >= value for held, _ in self.best)
