"""``runs verify-resume``: what it proves, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from support.runs import tiny  # noqa: E402
from trainlattice.runs.compare import compare_records  # noqa: E402
from trainlattice.runs.process import is_alive  # noqa: E402


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the runs of the command lie; the current directory is another one."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.chdir(tmp_path)
    return directory


def write(directory: Path, **sections: Any) -> Path:
    file = directory / "my.yaml"
    file.write_text(yaml.safe_dump(tiny(**sections)), encoding="utf-8")
    return file


def test_a_run_that_is_killed_and_resumed_is_identical_and_leaves_nothing(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path
):
    file = write(
        tmp_path,
        trainer={"epochs": 30},
        dataset={"samples": 40},
        optimizer={"name": "adamw", "lr": 0.01},
        scheduler={"name": "warmup_cosine", "warmup_steps": 2},
        checkpoint={"every_steps": 3},
    )
    said = cli(
        "runs", "verify-resume", file, "--kills", 2, "--seed", 3, "--set", "model.hidden_dims=[5]", "--json"
    )
    assert said.code == 0, said.out + said.err
    found = json.loads(said.out)
    assert found["same"]
    assert found["seed"] == 3
    assert len(found["kills"]) == 2
    assert any(kill["saved"] for kill in found["kills"])
    compared = {(part["file"], part["name"]) for part in found["parts"]}
    assert {
        (f, n) for f in ("last.pt", "best.pt") for n in ("weights", "optimizer", "scheduler", "rng")
    } <= compared
    assert found["records"]["compared"] == 150 + 30 + 30
    assert "seed 3, 2 kills" in said.err
    assert list(temporary.iterdir()) == []
    assert sorted(tmp_path.iterdir()) == [file, temporary]


def test_one_record_that_differs_or_is_missing_is_named():
    records = [{"type": "batch", "epoch": 1, "step": n, "loss": 0.5 / n, "time": float(n)} for n in (1, 2)]
    later = [{**record, "time": 9.0} for record in records]
    assert compare_records(records, later).same
    first = compare_records(records, [records[0], {**records[1], "loss": 0.25000000000000006}]).first
    assert first is not None
    assert first["step"] == 2
    assert first["fields"] == [{"path": "loss", "a": 0.25, "b": 0.25000000000000006}]
    first = compare_records(records, records[:1]).first
    assert first == {"type": "batch", "epoch": 1, "step": 2, "only": "a"}


def test_a_wrong_configuration_is_shown_before_anything_is_run(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path
):
    said = cli("runs", "verify-resume", write(tmp_path, optimizer={"lerning_rate": 1}))
    assert said.code == 2
    assert "lerning_rate" in said.err
    assert list(temporary.iterdir()) == []


def test_a_run_that_fails_by_itself_shows_the_end_of_its_log(
    cli: Callable[..., Any], temporary: Path, tmp_path: Path
):
    said = cli("runs", "verify-resume", write(tmp_path, optimizer={"lr": 1e30}, trainer={"epochs": 9}))
    assert said.code == 2
    (kept,) = temporary.iterdir()
    assert f"fails without any kill; the end of {kept / 'straight.log'}" in said.err
    assert "trainer.nonfinite=skip" in said.err
    assert json.loads((kept / "verification.json").read_text())["kills"] == 3


@pytest.mark.skipif(os.name == "nt", reason="SIGINT to a process")
def test_ctrl_c_ends_the_child_and_removes_what_it_made(tmp_path: Path):
    (temporary := tmp_path / "temporary").mkdir()
    file = write(tmp_path, trainer={"epochs": 100_000})
    command = [sys.executable, "-m", "trainlattice", "runs", "verify-resume", str(file)]
    with subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.DEVNULL
    ) as process:
        while not (manifests := list(temporary.glob("*/straight/[!.]*/manifest.json"))):
            assert process.poll() is None
            time.sleep(0.01)
        child = json.loads(manifests[0].read_text())["process"]
        assert is_alive(child)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    assert not is_alive(child)
    assert list(temporary.glob("trainlattice-*")) == []  # torch may leave a cache beside it
