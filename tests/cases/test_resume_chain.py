"""Cases about the records of runs that continue one another."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.runs import digests, run_dirs, tiny, train
from trainlattice import resume_run
from trainlattice.runs.chain import joined_records
from trainlattice.runs.listing import summarized

FIVE_STEPS_AN_EPOCH = {"samples": 40, "batch_size": 8}
KILLED_AFTER_STEP_8 = """
import json, os, signal, sys
from trainlattice import Callback, run_experiment


class Kill(Callback):
    def on_step_end(self, trainer):
        if trainer.state.global_step == 8:
            trainer.services.records.flush()
            os.kill(os.getpid(), signal.SIGKILL)


run_experiment(json.loads(sys.argv[1]), extra_callbacks=[Kill()])
"""


def config(directory: Path) -> dict[str, Any]:
    """Twelve steps with a checkpoint after steps 5, 10 and 12, and a record after each."""
    experiment = {"runs_dir": str(directory / "runs")}
    return tiny(experiment=experiment, dataset=FIVE_STEPS_AN_EPOCH, trainer={"max_steps": 12, "epochs": None})


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a run that was killed after step 8."""
    directory = tmp_path_factory.mktemp("killed")
    ended = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_STEP_8, json.dumps(config(directory))],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return directory


def steps(run: Path | None) -> list[int]:
    assert run is not None
    return [record["step"] for record in joined_records(run) if record["type"] == "batch"]


@pytest.mark.parametrize("cut", [0, 7])
def test_B28_the_chain_of_a_killed_run_has_each_step_once(killed: Path, tmp_path: Path, cut: int) -> None:
    (parent,) = run_dirs(killed)
    shutil.copytree(parent, tmp_path / "runs" / parent.name)
    (parent,) = run_dirs(tmp_path)
    metrics = parent / "metrics.jsonl"
    os.truncate(metrics, metrics.stat().st_size - cut)
    for line in metrics.read_text().split("\n")[:-1]:
        json.loads(line, parse_constant=pytest.fail)
    assert steps(parent) == list(range(1, 8 if cut else 9))
    found = summarized(parent)
    assert (found.status, found.epoch, found.global_step) == ("killed", 1, 7 if cut else 8)

    child = train(config(tmp_path), tmp_path, resume=parent).run_dir
    assert child is not None
    assert steps(child) == list(range(1, 13))
    epochs = [record["epoch"] for record in joined_records(child) if record["type"] == "epoch"]
    assert epochs == sorted(set(epochs))


def test_B29_a_resumed_run_leaves_the_files_of_the_first_as_they_were(tmp_path: Path) -> None:
    first = train(tiny(trainer={"epochs": 3}), tmp_path).run_dir
    assert first is not None
    before = digests(first)
    second = resume_run(first, overrides=["trainer.epochs=5"]).run_dir
    assert second is not None
    assert second != first
    assert digests(first) == before
    epochs = [record["epoch"] for record in joined_records(second) if record["type"] == "epoch"]
    assert epochs == [1, 2, 3, 4, 5]


def test_B28_a_checkpoint_that_was_written_in_the_background_ends_where_it_was_taken(tmp_path: Path) -> None:
    """Its event comes after a step that it does not know and that has its number: a skipped one."""

    def write(name: str, *lines: dict[str, Any], **manifest: Any) -> Path:
        run = tmp_path / name
        (run / "checkpoints").mkdir(parents=True)
        (run / "manifest.json").write_text(json.dumps(manifest))
        text = "".join(json.dumps({"epoch": 1, **line}) + "\n" for line in lines)
        (run / "metrics.jsonl").write_text(text)
        return run

    skipped = {"type": "event", "event": "skipped_step", "step": 8}
    saved = {"type": "event", "event": "checkpoint", "step": 8, "files": ["last.pt"], "records": 2}
    batch = {"type": "batch", "step": 8}
    first = write("first", {"type": "event", "event": "start", "step": 0}, batch, skipped, saved)
    (first / "checkpoints" / "last.pt").touch()
    begin = {"type": "event", "event": "resume", "step": 8}
    second = write("second", begin, skipped, resumed_from=str(first / "checkpoints" / "last.pt"))
    found = [record.get("event", "batch") for record in joined_records(second)]
    assert found == ["start", "batch", "resume", "skipped_step"]
