"""Every configuration in configs/ trains, through the function behind the command line."""

import json
import math
import runpy
import struct
from pathlib import Path

import pytest
import torch
import yaml

from support.runs import (
    InterruptAtStep,
    assert_same_end,
    checkpoint,
    manifest,
    records,
    run_dirs,
    train,
)
from support.runs import (
    trained as without_edges,
)
from trainlattice.cli.main import run
from trainlattice_plugin_datasets.digits import open_digits
from trainlattice_plugin_datasets.options import DigitsOptions

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
NEEDS_FILES = {"tensor_mlp", "diabetes_mlp", "two_inputs", "multi_task", "fashion_cnn"}


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
        "autoencoder",
        "segmentation",
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


def test_two_inputs_explain_a_third_of_the_variance(tmp_path):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    make_data("diabetes", tmp_path / "data" / "diabetes.csv")
    made = trained(tmp_path, "two_inputs", "trainer.epochs=10")
    validations = records(made, "validation")
    assert manifest(made)["best_metric"] == max(r["val_r2"] for r in validations) > 1 / 3
    # r2 is 1 - mse / variance: of the same 88 rows, whatever the epoch.
    variances = [r["val_loss"] / (1 - r["val_r2"]) for r in validations]
    assert variances == pytest.approx([variances[0]] * 10, rel=1e-4)


def test_both_tasks_of_one_model_are_learned_and_recorded_by_name(tmp_path):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    make_data("tumours", tmp_path / "data" / "tumours.csv")
    made = trained(tmp_path, "multi_task", "trainer.epochs=15")
    last = records(made, "validation")[-1]
    assert last["val_diagnosis_f1"] > 0.85
    assert last["val_radius_r2"] > 0.5
    assert last["val_radius"] < 23 / 2  # of a variance of 23
    assert last["val_loss"] == pytest.approx(last["val_diagnosis"] + 0.05 * last["val_radius"], rel=1e-6)
    epoch = records(made, "epoch")[-1]
    assert {"train_diagnosis", "train_radius", "train_accuracy"} <= set(epoch)
    assert not any(name.startswith("val_target") for name in last)


def test_a_head_that_is_too_narrow_for_its_classes_is_named(tmp_path, capsys):
    make_data("tumours", tmp_path / "data" / "tumours.csv")
    config = str(CONFIGS / "multi_task.yaml")
    assert run(["train", config, "--set", "trainer.device=cpu", "--set", "model.heads.diagnosis=1"]) == 2
    said = "the loss 'diagnosis' of pred/diagnosis and target/diagnosis: target 1 in row "
    assert said in capsys.readouterr().err


def test_multi_task_is_resumed_from_the_middle_of_an_epoch_bit_identically(tmp_path):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    make_data("tumours", tmp_path / "data" / "tumours.csv")
    config = yaml.safe_load((CONFIGS / "multi_task.yaml").read_text(encoding="utf-8"))
    config["trainer"] = {"epochs": 3, "log_every": 1, "device": "cpu"}
    config |= {"checkpoint": {"every_steps": 4}, "callbacks": []}
    for metric in config["metrics"]:  # what training has measured so far is part of the state
        metric["phases"] = ["train", "val"]
    whole = train(config, tmp_path / "whole").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "parts", extra_callbacks=[InterruptAtStep(21)])
    (first,) = run_dirs(tmp_path / "parts")
    assert checkpoint(first)["trainer"]["global_step"] == 20  # of 15 in an epoch
    second = train(config, tmp_path / "parts", resume=first / "checkpoints" / "last.pt").run_dir
    assert_same_end(whole, second)
    before = [record for record in records(first) if record["step"] <= 20]
    assert without_edges(before + records(second)) == without_edges(records(whole))


def test_the_autoencoder_is_far_better_than_the_mean_image(tmp_path):
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    made = trained(tmp_path, "autoencoder", "trainer.epochs=8")
    splits = open_digits(DigitsOptions())
    constant = (splits.val.inputs - splits.train.inputs.mean(0)).square().mean().item()
    last = records(made, "validation")[-1]
    assert last["val_mse"] < constant / 2
    assert last["val_loss"] == pytest.approx(last["val_mse"] + 0.1 * last["val_ssim"], rel=1e-5)
    # 10 log10 of the range over the mse, both of all pixels
    assert last["val_psnr"] == pytest.approx(-10 * math.log10(last["val_mse"]), rel=1e-4)
    assert "val_accuracy" not in last


def test_the_autoencoder_trains_on_files_of_fashion_mnist(tmp_path):
    """By the command of its comment, with files of the test's own."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    write_fashion(tmp_path)
    dataset = ("dataset.name=idx", f"dataset.root={tmp_path}", "dataset.batch_size=128")
    model = ("model.input_shape=[1, 28, 28]", "model.latent_dim=32")
    made = trained(tmp_path, "autoencoder", *dataset, *model, "trainer.epochs=3", "scheduler.warmup_steps=1")
    assert len(records(made, "epoch")) == 3


def test_the_segmentation_finds_the_shapes(tmp_path):
    """All ground would have an IoU of less than 1/4, the mean of its share of pixels and three zeros."""
    pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    made = trained(tmp_path, "segmentation", "trainer.epochs=6", "dataset.samples=256")
    validations = records(made, "validation")
    assert manifest(made)["best_metric"] == max(r["val_iou"] for r in validations) > 0.35
    last = validations[-1]
    assert last["val_loss"] == pytest.approx(last["val_cross_entropy"] + last["val_dice"], rel=1e-6)
    assert last["val_accuracy"] > 0.9  # of pixels


def write_fashion(directory):
    """Forty images of noise in place of the 70,000."""
    generator = torch.Generator().manual_seed(0)
    for name, count in (("train", 30), ("t10k", 10)):
        pixels = torch.randint(256, (count, 28, 28), generator=generator, dtype=torch.uint8)
        labels = torch.arange(count, dtype=torch.uint8) % 10
        header = struct.pack(">HBB3I", 0, 8, 3, count, 28, 28)
        (directory / f"{name}-images-idx3-ubyte").write_bytes(header + pixels.numpy().tobytes())
        (directory / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">HBBI", 0, 8, 1, count) + labels.numpy().tobytes()
        )


def test_fashion_cnn_trains_on_files_of_its_form(tmp_path):
    write_fashion(tmp_path)
    made = trained(tmp_path, "fashion_cnn", f"dataset.root={tmp_path}", "scheduler.warmup_steps=1")
    assert len(records(made, "epoch")) == 5


def test_fashion_cnn_without_its_files_says_which_directory_is_missing(tmp_path, capsys):
    root = tmp_path / "nowhere"
    assert run(["train", str(CONFIGS / "fashion_cnn.yaml"), "--set", f"dataset.root={root}"]) == 2
    assert f"{root} does not exist" in capsys.readouterr().err
    assert run_dirs(tmp_path) == []
