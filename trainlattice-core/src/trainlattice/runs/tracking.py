"""The trackers that a configuration names, and what they are told of their run."""

from __future__ import annotations

from pathlib import Path

from trainlattice.config.contracts import own_name
from trainlattice.config.resolve import Resolution
from trainlattice.config.resolved import ResolvedConfig
from trainlattice.config.snapshot import read_only
from trainlattice.contracts.settings import TrackerSettings
from trainlattice.contracts.tracking import TrackedRun, Tracker
from trainlattice.runs.chain import continued_runs
from trainlattice.runs.directory import RunDirectory
from trainlattice.runs.targets import call_target, expect
from trainlattice.training.tracking import Tracking


def build_trackers(resolution: Resolution) -> Tracking:
    """Creates nothing and starts nothing. What cannot work (a library or a key that is missing) is raised here."""
    named = []
    for component in resolution.config.many("trackers"):
        tracker: Tracker = call_target(resolution, component)
        expect(component, tracker, Tracker, "a Tracker")
        assert isinstance(component.settings, TrackerSettings)
        named.append((own_name(component), tracker, component.settings))
    return Tracking(named)


def tracked(config: ResolvedConfig, run: RunDirectory, resumed_from: Path | None) -> TrackedRun:
    """What every tracker of a run is told, but for its own name."""
    return TrackedRun(
        tracker="",
        directory=run.path.absolute(),
        name=config.experiment.name,
        seed=config.experiment.seed,
        config=read_only(config.as_plain()),
        resumed_from=resumed_from,
        continues=continued_runs(run),
    )
