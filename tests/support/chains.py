"""A run, killed and resumed until it is finished, and what its end must equal."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from support.fork_server import ForkServer
from support.runs import assert_identical, checkpoint, run_dirs
from trainlattice.checkpoint.store import CheckpointStore, load

NO_TIMES = frozenset({"seconds", "data_seconds"})


@dataclass
class Chain:
    """Runs below one directory, each a resume of the one before.

    :param kills: processes that a signal ended.
    """

    server: ForkServer
    directory: Path
    config: dict[str, Any]
    kills: int = 0
    instants: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True)
        config = {**self.config, "experiment": {"seed": 5, "runs_dir": str(self.directory / "runs")}}
        self.file = self.directory / "config.yaml"
        self.file.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.log = self.directory / "log.txt"

    def runs(self) -> list[Path]:
        """Without what a kill left of one that was never made."""
        return [run for run in run_dirs(self.directory) if not run.name.startswith(".")]

    def start(self, **more: Any) -> int:
        runs = self.runs()
        if not any((run / "checkpoints" / "last.pt").is_file() for run in runs):
            return self.server.start(
                "train", self.file, self.log, **more
            )  # nothing was saved: it begins again
        return self.server.start("resume", runs[-1], self.log, **more)

    def finish(self) -> Path:
        """Goes on to the end, undisturbed; the last run directory."""
        status = self.server.wait(self.start())
        assert status == 0, self.log.read_text()
        return self.runs()[-1]

    def kill_at_random(self, generator: random.Random, longest: float) -> bool:
        """Starts the run or resumes it and kills it at a random instant; whether that was before its end."""
        pid, delay = self.start(group=True), generator.uniform(0.0, longest)
        self.instants.append(delay)
        time.sleep(delay)
        if self.server.poll(pid) is None:
            os.killpg(pid, signal.SIGKILL)
        status = self.server.wait(pid)
        assert status in (0, -signal.SIGKILL), f"{self.instants}: {status}\n{self.log.read_text()}"
        self.kills += status != 0
        self.check()
        return status != 0

    def check(self) -> None:
        """Whatever the instant of the kill: every checkpoint that stands is whole, and the index knows it."""
        for run in self.runs():
            store = CheckpointStore(run / "checkpoints")
            if not store.directory.is_dir():
                continue
            for path in store.directory.glob("*.pt"):
                assert path.name in store.index(), (path, self.instants)
                load(path)
            # All names of a save that did not end are names of one file.
            assert len({path.stat().st_ino for path in store.directory.glob(".*.pt.*.tmp")}) <= 1
            if (run / "metrics.jsonl").is_file():
                lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
                for line in lines:
                    if line.endswith("\n"):
                        json.loads(line)


def outcome(run: Path, name: str = "last.pt") -> dict[str, Any]:
    """Everything in a checkpoint that two runs of one configuration must share to the last bit."""
    held = checkpoint(run, name)
    held["states"]["progress"] = {k: v for k, v in held["states"]["progress"].items() if k not in NO_TIMES}
    return {key: held[key] for key in ("states", "trainer", "rng", "order", "budget", "kind")}


def assert_same_end(run: Path, straight: Path) -> None:
    """Weights, buffers, optimizer, schedule, progress, RNG; and the best checkpoint's too."""
    for name in ("last.pt", "best.pt"):
        if (straight / "checkpoints" / name).is_file():
            assert_identical(outcome(run, name), outcome(straight, name))


def largest_difference(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    return max((a.double() - right[k].double()).abs().max().item() for k, a in left.items())
