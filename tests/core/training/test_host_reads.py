"""Between two log steps nothing waits for the device: no value of a tensor is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from support.by_hand import line
from support.host_reads import Reads
from support.runs import tiny
from trainlattice import run_from_file

pytestmark = pytest.mark.torch
LOG_EVERY = 4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trainer": {"max_grad_norm": 0.1}},
        {"trainer": {"accumulate": 2}},
        {"trainer": {"precision": "bf16"}},
        {"optimizer": {"name": "sgd", "momentum": 0.9}},
        {"optimizer": {"name": "adam"}, "scheduler": {"name": "warmup_cosine", "warmup_steps": 2}},
        {"line": {"dataset": {"x": [1.0] * 10, "y": [2.0] * 10}}},
    ],
    ids=str,
)
def test_no_value_is_read_between_log_steps(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = line(**changes["line"]) if "line" in changes else tiny(**changes)
    config["trainer"] = {**config["trainer"], "epochs": 2, "log_every": LOG_EVERY, "device": "cpu"}
    config["dataset"]["batch_size"] = 1
    config["callbacks"] = []
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    reads = Reads(monkeypatch)
    result = run_from_file(path, extra_callbacks=[reads])

    steps_per_epoch = result.global_step // 2
    logged = {s for s in range(1, result.global_step + 1) if s % LOG_EVERY == 0}
    ends = {steps_per_epoch, result.global_step}  # the flag of what is not finite, before the checkpoint
    assert logged & set(reads.steps), "the log itself reads"
    assert set(reads.steps) <= logged | ends


def test_an_optimizer_without_found_inf_is_seen_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above can fail: torch's own loop cannot be told on the device to leave a step out."""
    config = tiny(optimizer={"implementation": "loop"}, trainer={"log_every": 1000, "epochs": 1})
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**config, "callbacks": []}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    reads = Reads(monkeypatch)
    result = run_from_file(path, extra_callbacks=[reads])
    assert len(reads.steps) >= result.global_step
