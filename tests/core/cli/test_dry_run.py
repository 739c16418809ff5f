"""``train --dry-run``: everything is built and tried, and nothing is created."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.configs import write_tiny

pytest.importorskip("torch")

from torch.optim.lr_scheduler import OneCycleLR

from support.by_hand import line
from trainlattice import OptionError, Options, register_scheduler, register_tracker
from trainlattice.runs.experiment import dry_run_file

pytestmark = pytest.mark.torch


register_scheduler("counts_its_steps")(
    lambda optimizer, total_steps: OneCycleLR(optimizer, 0.1, total_steps=total_steps)
)


class KeyOptions(Options):
    key: str | None = None


@register_tracker("has_no_key", options=KeyOptions)
def build_without_key(options: KeyOptions) -> None:
    raise OptionError("key", "give it a key")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path)
    return tmp_path


def rows(out: str, phase: str) -> dict[str, str]:
    """Type and shape by key of a phase's table."""
    part = out[out.index(f"\n{phase}: one batch") :].split("\n\n")[0].splitlines()[3:]
    return {words[0]: " ".join(words[1:]) for words in map(str.split, part)}


def test_it_shows_sizes_and_the_shape_of_every_key_of_every_phase(cli: Callable, project: Path):
    """The tiny model: 4 x 8 + 8 and 8 x 3 + 3 weights; Adam holds two more for each, and a step of 4 bytes for
    each of 4 tensors."""
    said = cli("train", "tiny.yaml", "--dry-run")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == "parameters  67, of which 67 are trained, on cpu"
    assert "weights 268 B, gradients 268 B, optimizer 552 B" in said.out
    assert "20 samples, 3 steps in an epoch" in said.out
    assert " 6 steps: " in said.out
    for phase, samples in (("train", 8), ("val", 8)):
        found = rows(said.out, phase)
        assert found["input"] == f"float32 [{samples}, 4]"
        assert found["target"] == f"int64 [{samples}]"
        assert found["pred"] == f"float32 [{samples}, 3]"
        assert found["loss"] == "float32 []"
        assert found["phase"] == f"str {phase}"
    assert said.out.endswith("dry run: no run was created\n")
    assert [path.name for path in project.iterdir()] == ["tiny.yaml"]


def test_a_mistake_that_only_the_data_shows_has_its_line(cli: Callable, project: Path):
    said = cli("train", "tiny.yaml", "--dry-run", "--set", "model.num_classes=2")
    assert said.code == 2
    assert "num_classes" in said.err
    assert not (project / "runs").exists()


def test_it_resumes_nothing(cli: Callable):
    said = cli("train", "tiny.yaml", "--dry-run", "--resume", "runs/some")
    assert said.code == 2
    assert "leave out --resume" in said.err


def test_a_window_of_several_batches_is_one_step(project: Path):
    found = dry_run_file("tiny.yaml", overrides=["trainer.accumulate=2"])
    assert (found.steps_per_epoch, found.total_steps) == (2, 4)


def test_without_validation_data_there_is_one_phase(project: Path):
    import yaml

    config = line(dataset={"x": [1.0, 2.0], "y": [2.0, 4.0], "batch_size": 2})
    (project / "line.yaml").write_text(yaml.safe_dump(config))
    found = dry_run_file("line.yaml")
    assert [trial.phase for trial in found.phases] == ["train"]
    assert found.peak_bytes is None
    least, most = found.step_seconds[1:]
    assert 0 < least <= found.step_seconds[0] <= most


def test_what_would_stop_the_first_step_is_said(cli: Callable, project: Path):
    import yaml

    config = line(dataset={"x": [1.0, 2.0], "y": [2.0, 4.0], "batch_size": 2}, optimizer={"lr": 0.1})
    config["model"] = {"name": "line"}
    config["loss"] = {"name": "mse", "weight": 1.0e308}
    config["dataset"]["y"] = [1.0e30, 1.0e30]  # its square is more than float32 holds
    (project / "line.yaml").write_text(yaml.safe_dump(config))
    assert cli("train", "line.yaml", "--runs-dir", "made").code == 12
    said = cli("train", "line.yaml", "--dry-run")
    assert said.code == 12
    assert "the loss or a gradient of step 1 is not finite" in said.err


def test_a_schedule_with_fewer_steps_than_are_timed_is_tried(cli: Callable, project: Path):
    said = cli(
        "train",
        "tiny.yaml",
        "--dry-run",
        "--set",
        "trainer.max_steps=2",
        "--set",
        "scheduler=counts_its_steps",
    )
    assert (said.code, said.err) == (0, "")


def test_a_tracker_that_cannot_work_is_said(cli: Callable, project: Path):
    said = cli("train", "tiny.yaml", "--dry-run", "--set", "trackers=[has_no_key]")
    assert said.code == 2
    assert "give it a key" in said.err
