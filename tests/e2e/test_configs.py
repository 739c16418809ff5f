"""Every configuration in configs/ trains, through the function behind the command line."""

import json
import runpy
import struct
from pathlib import Path

import pytest
import torch

from support.runs import manifest, records, run_dirs
from trainlattice.cli.main import run

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
NEEDS_FILES = {"tensor_mlp", "diabetes_mlp", "fashion_cnn"}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def trained(directory, name, *overrides):
    """The run directory that ``trainlattice train configs/<name>.yaml`` made."""
    arguments = [argument for override in overrides for argument in ("--set", override)]
    assert run(["train", str(CONFIGS / f"{name}.yaml"), "--set", "trainer.device=cpu", *arguments]) == 0
    (made,) = run_dirs(directory)
    assert manifest(made)["status"] == "finished"
    return made


def make_data(kind, target):
    runpy.run_path(str(CONFIGS / "make_data.py"))[kind](target)


def test_every_configuration_is_trained_by_a_test_here():
    named = {path.stem for path in CONFIGS.glob("*.yaml")}
    assert named == NEEDS_FILES | {
        "synthetic_mlp",
        "synthetic_cnn",
        "synthetic_mlp_efficiency",
        "digits_cnn",
        "digits_f1",
        "digits_ema",
    }


@pytest.mark.parametrize("name", ["synthetic_mlp", "synthetic_cnn"])
def test_the_smoke_tests_train_as_they_are(tmp_path, capsys, name):
    made = trained(tmp_path, name)
    assert [r["epoch"] for r in records(made, "epoch")] == [1, 2]
    out = capsys.readouterr().out
    assert "Run finished: runs/" in out
    assert "best     val_loss" in out
    assert f"resume   trainlattice resume runs/{made.name} --set trainer.epochs=4" in out


def test_schedule_accumulation_bf16_and_early_stopping_work_together(tmp_path):
    made = trained(tmp_path, "synthetic_mlp_efficiency", "trainer.epochs=3", "trainer.log_every=1")
    assert len(records(made, "batch")) == 6
    rates = [r["lr"] for r in records(made, "batch")]
    assert rates[:4] == pytest.approx([0.00025, 0.0005, 0.00075, 0.001])


def test_six_epochs_on_real_digits_reach_97_percent(tmp_path):
    made = trained(tmp_path, "digits_cnn", "trainer.epochs=6")
    assert manifest(made)["best_metric"] >= 0.97


def test_averaged_digits_are_learned_and_summed_up(tmp_path):
    made = trained(tmp_path, "digits_ema", "trainer.epochs=3")
    summary = json.loads((made / "trial_summary.json").read_text())
    assert (summary["status"], summary["exit_code"], summary["epochs"]) == ("finished", 0, 3)
    assert summary["last"]["validation"]["val_accuracy"] > 0.8
    assert summary["last"]["batch"]["grad_norm/optimizer/head"] > 0


def test_digits_are_judged_by_their_f1(tmp_path):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    made = trained(tmp_path, "digits_f1", "trainer.epochs=3")
    validations = records(made, "validation")
    assert manifest(made)["best_metric"] == max(r["val_f1"] for r in validations) >= 0.8
    matrix = torch.tensor(validations[-1]["val_confusion_matrix"])
    right = matrix.diag() * 2 / (matrix.sum(0) + matrix.sum(1))
    assert validations[-1]["val_f1"] == pytest.approx(float(right.mean()), rel=1e-6)


def test_tensor_mlp_trains_on_the_files_of_its_command(tmp_path):
    make_data("tensor", tmp_path / "data" / "tensor")
    made = trained(tmp_path, "tensor_mlp")
    assert len(records(made, "epoch")) == 2


def test_diabetes_mlp_explains_a_third_of_the_variance(tmp_path):
    """The table of its command: scikit-learn's 442 patients, with a variance of the target of 5,930."""
    make_data("diabetes", tmp_path / "data" / "diabetes.csv")
    made = trained(tmp_path, "diabetes_mlp")
    assert manifest(made)["best_metric"] < 5930 * 2 / 3
    assert "train_accuracy" not in records(made, "epoch")[0]


def test_fashion_cnn_trains_on_files_of_its_form(tmp_path):
    """Forty images of noise in place of the 70,000."""
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train", 30), ("t10k", 10)):
        pixels = torch.randint(256, (count, 28, 28), generator=generator, dtype=torch.uint8)
        labels = torch.arange(count, dtype=torch.uint8) % 10
        header = struct.pack(">HBB3I", 0, 8, 3, count, 28, 28)
        Path(f"{name}-images-idx3-ubyte").write_bytes(header + pixels.numpy().tobytes())
        Path(f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">HBBI", 0, 8, 1, count) + labels.numpy().tobytes()
        )
    made = trained(tmp_path, "fashion_cnn", f"dataset.root={tmp_path}", "scheduler.warmup_steps=1")
    assert len(records(made, "epoch")) == 5


def test_fashion_cnn_without_its_files_says_which_directory_is_missing(tmp_path, capsys):
    root = tmp_path / "nowhere"
    assert run(["train", str(CONFIGS / "fashion_cnn.yaml"), "--set", f"dataset.root={root}"]) == 2
    assert f"{root} does not exist" in capsys.readouterr().err
    assert run_dirs(tmp_path) == []
