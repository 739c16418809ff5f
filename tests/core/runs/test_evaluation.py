"""``evaluate_run``: the metrics of a checkpoint, and nothing else happens."""

import math

import pytest
import torch
import yaml
from torch import nn
from torch.nn import functional

from support.by_hand import line
from support.idx import write_idx
from support.runs import checkpoint, digests, records, tiny, train, weights
from trainlattice import register_model
from trainlattice.diagnostics.errors import CheckpointError, ConfigError
from trainlattice.runs.evaluation import evaluate_run
from trainlattice_plugin_datasets.idx import open_idx
from trainlattice_plugin_datasets.options import IdxOptions

pytestmark = pytest.mark.torch
RISING = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0] * 3, "val_y": [0.0] * 3, "batch_size": 2}
"""w goes towards 1 and the validation wants 0: the first epoch is the best."""


def validated(run):
    """``val_`` metrics by epoch."""
    return [{k: v for k, v in r.items() if k.startswith("val_")} for r in records(run, "epoch")]


def idx_config(tmp_path, **options):
    write_idx(tmp_path)
    return tiny(
        model={"input_dim": 6, "num_classes": 2},
        dataset={"name": "idx", "root": str(tmp_path), "num_classes": 2, "batch_size": 3, **options},
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_values_are_those_that_the_run_itself_measured(tmp_path, precision):
    run = train(tiny(trainer={"epochs": 3, "precision": precision}), tmp_path).run_dir
    found = evaluate_run(run / "checkpoints" / "last.pt")
    assert found.metrics == validated(run)[-1]
    assert (found.split, found.epoch, found.step, found.samples) == ("val", 3, 9, 10)


def test_a_run_directory_means_its_best_checkpoint(tmp_path):
    run = train(line(dataset=RISING, trainer={"epochs": 3}), tmp_path).run_dir
    first, *_, last = validated(run)
    assert first["val_loss"] < last["val_loss"]
    found = evaluate_run(run)
    assert found.checkpoint == run / "checkpoints" / "best.pt"
    assert (found.epoch, found.metrics) == (1, first)


def test_without_a_best_checkpoint_it_means_the_last(tmp_path):
    run = train(line(dataset=RISING, trainer={"epochs": 2}), tmp_path).run_dir
    (run / "checkpoints" / "best.pt").unlink()
    found = evaluate_run(run)
    assert (found.checkpoint.name, found.metrics) == ("last.pt", validated(run)[-1])


def test_the_test_split_is_the_test_data(tmp_path):
    """idx with val_fraction: validation data is held out of the training files, test data has its own."""
    run = train(idx_config(tmp_path, val_fraction=0.25), tmp_path).run_dir
    found = evaluate_run(run, split="test")
    data = open_idx(IdxOptions(root=str(tmp_path), num_classes=2, val_fraction=0.25)).test
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 2))
    names = list(model.state_dict())
    model.load_state_dict(dict(zip(names, weights(run, "best.pt").values(), strict=True)))
    logits = model(data.inputs)
    assert found.samples == len(data) == 4
    assert found.metrics == {
        "test_loss": pytest.approx(functional.cross_entropy(logits, data.targets).item(), rel=1e-6),
        "test_accuracy": (logits.argmax(1) == data.targets).float().mean().item(),
    }
    assert found.metrics["test_loss"] != evaluate_run(run).metrics["val_loss"]


def test_a_dataset_without_test_data_is_named(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    with pytest.raises(CheckpointError, match="'datasets:synthetic' has no test data") as raised:
        evaluate_run(run, split="test")
    assert raised.value.exit_code == 2


def test_a_damaged_checkpoint_is_refused_and_the_usable_one_named(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    best = run / "checkpoints" / "best.pt"
    best.unlink()  # a link to the bytes of last.pt
    best.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=r"best\.pt is damaged.*usable: .*last\.pt"):
        evaluate_run(run)
    assert evaluate_run(run / "checkpoints" / "last.pt").epoch == 2


def test_a_run_without_a_checkpoint_and_a_path_that_is_no_run_are_named(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    for name in ("best.pt", "last.pt"):
        (run / "checkpoints" / name).unlink()
    with pytest.raises(CheckpointError, match=r"neither checkpoints/best\.pt nor checkpoints/last\.pt"):
        evaluate_run(run)
    with pytest.raises(CheckpointError, match="gone does not exist"):
        evaluate_run(tmp_path / "gone")


def test_nothing_is_written(tmp_path):
    run = train(idx_config(tmp_path), tmp_path).run_dir
    before = digests(tmp_path)
    evaluate_run(run)
    evaluate_run(run, split="test")
    assert digests(tmp_path) == before
    assert run.is_dir()


def test_another_device_can_be_asked_for_and_one_that_is_not_there_is_refused(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    assert evaluate_run(run, device="cpu").metrics == evaluate_run(run).metrics
    with pytest.raises(ConfigError, match="device"):
        evaluate_run(run, device="cuda:99")


def test_weights_that_do_not_fit_the_model_are_refused(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["model"]["hidden_dims"] = [9]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(CheckpointError, match=r"(?s)best\.pt does not fit this run.*size mismatch"):
        evaluate_run(run)


def test_the_random_numbers_of_the_program_are_left_alone_by_the_evaluation_itself(tmp_path):
    """Two evaluations of a model that draws agree: each begins from the seed of the run."""

    @register_model("draws")
    class Draws(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x) + torch.rand(len(x), 3)

    run = train(tiny(model={"name": "draws"}), tmp_path).run_dir
    assert evaluate_run(run).metrics == evaluate_run(run).metrics


def test_a_metric_that_is_not_finite_is_null_in_json(tmp_path):
    run = train(tiny(trainer={"nonfinite": "continue"}), tmp_path).run_dir
    content = checkpoint(run)
    content["states"]["model/model"]["layers.1.weight"].fill_(math.nan)
    (run / "checkpoints" / "index.json").unlink()
    torch.save(content, run / "checkpoints" / "last.pt")
    assert evaluate_run(run / "checkpoints" / "last.pt").as_json()["metrics"]["val_loss"] is None
