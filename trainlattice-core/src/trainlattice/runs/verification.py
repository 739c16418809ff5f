"""Proves that a run which is killed and resumed ends as one that was never touched.

The configuration is trained once straight, and once killed at random instants and resumed after each; then the two
ends are compared bit by bit. Each run is a process as a user would start it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainlattice.checkpoint.names import BEST, LAST
from trainlattice.checkpoint.peek import peek
from trainlattice.config.resolve import resolve_file
from trainlattice.diagnostics.errors import TrainLatticeError, UsageError
from trainlattice.runs.chain import Record, joined_records
from trainlattice.runs.child import WITHOUT_TRACKERS, Child, last_lines, run_in, runs_dir_is
from trainlattice.runs.compare import compare_records
from trainlattice.runs.proof import Proof

if TYPE_CHECKING:
    pass

REPORT = "verification.json"
_SHORTEST = 0.01
_MOST_TRIES = 12


@dataclass(frozen=True)
class Kill:
    """One SIGKILL.

    :param after: seconds since its run directory had appeared.
    :param run: the directory.
    :param reached: the last step that the run had recorded.
    :param saved: the step of the last.pt in that directory; None if it had saved none.
    """

    after: float
    run: str
    reached: int
    saved: int | None


@dataclass(frozen=True)
class Verification(Proof):
    """What came out.

    :param seed: of the instants.
    :param straight: the run that was never touched.
    :param resumed: the last of those that were killed and resumed.
    :param seconds: that the straight run trained.
    """

    config: str
    seed: int
    straight: Path
    resumed: Path
    seconds: float
    steps: int
    kills: list[Kill]

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "kills": [asdict(kill) for kill in self.kills]}


def verify_resume(
    config: Path,
    directory: Path,
    *,
    kills: int,
    seed: int,
    overrides: Sequence[str] = (),
    local_files: Sequence[str] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Verification:
    """Trains ``config`` twice below ``directory`` and compares.

    :param tell: hears of each step.
    :raises ConfigError: with every mistake in the configuration, before anything is run.
    :raises UsageError: if it does not train.
    :raises TrainLatticeError: if a run that was killed cannot be resumed.
    """
    overrides = (*overrides, WITHOUT_TRACKERS)
    resolve_file(config, overrides, local_files=local_files)
    more = [
        f"{name}={value}"
        for name, values in (("--set", overrides), ("--plugin", local_files))
        for value in values
    ]
    trial = _Trial(["train", str(config), *more], directory, tell)
    (directory / REPORT).write_text(json.dumps({"config": str(config), "seed": seed, "kills": kills}) + "\n")
    straight, seconds, steps = trial.straight()
    tell(f"straight run: {steps} steps in {seconds:.2f} s")
    generator = random.Random(seed)
    instants = sorted(generator.random() * seconds for _ in range(kills))
    trial.kill([b - a for a, b in zip([0.0, *instants], instants, strict=False)])
    resumed = trial.finish()

    from trainlattice.checkpoint.identity import compare_checkpoints  # imports torch

    parts = [
        part
        for name in (LAST, BEST)
        for part in compare_checkpoints(straight / "checkpoints" / name, resumed / "checkpoints" / name)
    ]
    records = compare_records(joined_records(straight), joined_records(resumed))
    found = Verification(parts, records, str(config), seed, straight, resumed, seconds, steps, trial.kills)
    (directory / REPORT).write_text(json.dumps(found.as_json(), indent=2) + "\n", encoding="utf-8")
    return found


@dataclass
class _Trial:
    """The runs below one directory: ``straight/``, and ``1/``, ``2/``, ... for those that continue one another.

    :param begin: arguments that begin a run.
    """

    begin: list[str]
    directory: Path
    tell: Callable[[str], None]

    def __post_init__(self) -> None:
        self.kills: list[Kill] = []
        self._parent: Path | None = None  # the run that goes on; None: it begins again
        self._number = 0

    def straight(self) -> tuple[Path, float, int]:
        """Directory, seconds and steps of the run that is never touched."""
        log, runs_dir = self.directory / "straight.log", self.directory / "straight"
        with Child([*self.begin, "--runs-dir", runs_dir], log) as child:
            run = child.run_directory(runs_dir)
            if child.wait() != 0 or run is None:
                raise UsageError(f"the run fails without any kill; the end of {log}:\n{last_lines(log)}")
        records = joined_records(run)
        times = [record["time"] for record in records if record.get("event") in ("start", "end")]
        return run, max(_SHORTEST, times[-1] - times[0]), records[-1]["step"]

    def kill(self, delays: list[float]) -> None:
        """Begins, and then resumes, a run for each delay, and kills it after that. One that had trained to its end
        by then shows nothing: it is left aside, and what it continued is resumed again with half the delay."""
        parents: list[Path | None] = []
        waiting = delays[::-1]
        for _ in range(_MOST_TRIES * len(delays)):
            if not waiting:
                return
            parents.append(self._parent)
            outcome = self._kill_after(waiting[-1])
            if isinstance(outcome, Kill):
                waiting.pop()
                self.kills.append(outcome)
                goes_on = "no checkpoint" if outcome.saved is None else f"last.pt of step {outcome.saved}"
                text = f"{outcome.after:.2f} s into training, after step {outcome.reached}; {goes_on}"
                self.tell(f"kill {len(self.kills)}: {text}")
                continue
            self._parent = parents.pop()
            if outcome == "complete":  # the kill before this one came after the last save
                self._parent = parents.pop()
                waiting.append(self.kills.pop().after)
                self.tell(f"kill {len(self.kills) + 1} came too late, and is made again")
            waiting[-1] /= 2
        raise TrainLatticeError("the run always ended before it could be killed: it is too short")

    def _kill_after(self, delay: float) -> Kill | Literal["ended", "complete"]:
        """``ended``: its training was over; ``complete``: nothing had been left to train."""
        with self._start() as child:
            run = child.run_directory(self._runs_dir)
            if run is not None and child.killed_after(delay):
                over = any(record.get("event") == "end" for record in joined_records(run))
                return self._killed(run, delay) if not over else "ended"
            if child.wait() != 0:
                raise self._failed("fails after a kill" if self.kills else "fails, and did not before")
        return "ended" if run is not None else "complete"

    def finish(self) -> Path:
        """The run directory in which the chain ends."""
        with self._start() as child:
            if child.wait() != 0:
                raise self._failed("fails after a kill")
        run = run_in(self._runs_dir) or self._parent  # a run that was complete makes no other
        assert run is not None
        return run

    def _start(self) -> Child:
        self._number += 1
        place = ["--runs-dir", str(self._runs_dir)]
        if self._parent is None:
            return Child([*self.begin, *place], self._log)
        # Values that were set, and local files, are in the run's directory.
        return Child(["resume", self._parent, f"--set={runs_dir_is(self._runs_dir)}"], self._log)

    def _killed(self, run: Path, delay: float) -> Kill:
        saved = peek(run / "checkpoints" / LAST)
        if saved is not None or self._parent is not None:
            self._parent = run
        records: list[Record] = joined_records(run)
        reached = records[-1]["step"] if records else 0
        return Kill(delay, str(run), reached, saved.global_step if saved else None)

    def _failed(self, what: str) -> TrainLatticeError:
        return TrainLatticeError(f"the run {what}; the end of {self._log}:\n{last_lines(self._log)}")

    @property
    def _runs_dir(self) -> Path:
        return self.directory / str(self._number)

    @property
    def _log(self) -> Path:
        return self.directory / f"{self._number}.log"
