"""The built-in losses equal torch's."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.by_hand import line
from support.runs import records, tiny, train, weights
from trainlattice import register_dataset, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import ConfigError
from trainlattice_plugin_losses.classification import CrossEntropy
from trainlattice_plugin_losses.options import CrossEntropyOptions, RegressionOptions
from trainlattice_plugin_losses.regression import L1, MeanSquaredError

pytestmark = pytest.mark.torch


def value_and_gradient(loss, pred, target):
    pred = pred.clone().requires_grad_()
    value = loss(pred, target)
    value.backward()
    return value.detach(), pred.grad


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignore_index", [-100, 2])
def test_cross_entropy_has_torchs_value_and_gradient(reduction, smoothing, ignore_index):
    torch.manual_seed(0)
    pred, target = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 2, 1])
    options = CrossEntropyOptions(reduction=reduction, label_smoothing=smoothing, ignore_index=ignore_index)

    def plain(p, t):
        return functional.cross_entropy(
            p, t, reduction=reduction, label_smoothing=smoothing, ignore_index=ignore_index
        )

    ours, theirs = (
        value_and_gradient(CrossEntropy(options), pred, target),
        value_and_gradient(plain, pred, target),
    )
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


def test_cross_entropy_of_equal_logits_is_the_logarithm_of_the_number_of_classes():
    loss = CrossEntropy(CrossEntropyOptions())
    assert loss(torch.zeros(3, 5), torch.tensor([0, 1, 4])).item() == pytest.approx(math.log(5))


def test_cross_entropy_takes_one_target_for_each_pixel():
    pred, target = torch.randn(2, 4, 3, 3), torch.randint(4, (2, 3, 3))
    ours = CrossEntropy(CrossEntropyOptions())(pred, target)
    assert torch.equal(ours, functional.cross_entropy(pred, target))


@pytest.mark.parametrize(
    ("loss", "plain"), [(MeanSquaredError, functional.mse_loss), (L1, functional.l1_loss)]
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_regression_losses_have_torchs_value_and_gradient(loss, plain, reduction):
    torch.manual_seed(0)
    pred, target = torch.randn(6, 2), torch.randn(6, 2)
    ours = value_and_gradient(loss(RegressionOptions(reduction=reduction)), pred, target)
    theirs = value_and_gradient(lambda p, t: plain(p, t, reduction=reduction), pred, target)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


def test_regression_losses_by_hand():
    pred, target = torch.tensor([[1.0], [4.0]]), torch.tensor([[2.0], [1.0]])
    assert MeanSquaredError(RegressionOptions())(pred, target).item() == 5.0
    assert L1(RegressionOptions())(pred, target).item() == 2.0
    assert MeanSquaredError(RegressionOptions(reduction="sum"))(pred, target).item() == 10.0


@pytest.mark.parametrize("loss", [MeanSquaredError, L1])
@pytest.mark.parametrize("shapes", [((4, 1), (4,)), ((4,), (4, 1)), ((4, 2), (4, 1))])
def test_shapes_that_would_broadcast_are_refused(loss, shapes):
    pred, target = (torch.zeros(*shape) for shape in shapes)
    with pytest.raises(ValueError, match="they must be equal") as raised:
        loss(RegressionOptions())(pred, target)
    assert f"{list(shapes[0])} and targets {list(shapes[1])}" in str(raised.value)


# --- in a run


def test_metrics_report_the_mean_also_where_the_sum_goes_backward(tmp_path):
    """Two batches of 3 and 1 samples: the epoch's loss is the mean over four."""
    found = {}
    for reduction in ("mean", "sum"):
        config = line(
            model={"w0": 0.0},
            dataset={"x": [0.0] * 4, "y": [2.0] * 4, "val_x": [0.0] * 3, "val_y": [3.0] * 3, "batch_size": 3},
            loss={"reduction": reduction},
        )
        found[reduction] = records(train(config, tmp_path).run_dir)
    for run in found.values():
        assert [r["loss"] for r in run if r["type"] == "batch"] == [4.0, 4.0]
        (epoch,) = [r for r in run if r["type"] == "epoch"]
        assert (epoch["train_loss"], epoch["val_loss"]) == (4.0, 9.0)


def test_the_mean_is_over_all_values_of_a_wide_target(tmp_path):
    """Two outputs: both reductions report the mean over samples and outputs."""
    for name, count in (("train.pt", 8), ("validation.pt", 4)):
        torch.save({"features": torch.ones(count, 4), "labels": torch.full((count, 2), 3.0)}, tmp_path / name)
    losses = []
    for reduction in ("mean", "sum"):
        config = tiny(
            model={"num_classes": 2, "hidden_dims": [], "dropout": 0.0},
            dataset={"name": "tensor", "root": str(tmp_path), "num_classes": 2, "batch_size": 8},
            loss={"name": "mse", "reduction": reduction},
            trainer={"epochs": 1},
        )
        losses.append(records(train(config, tmp_path).run_dir, "batch")[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_a_sum_keeps_its_larger_gradient(tmp_path):
    """Four samples of gradient -2: the mean moves w by 0.1 * 2, the sum by 0.1 * 8."""
    found = []
    for reduction in ("mean", "sum"):
        config = line(
            dataset={"x": [1.0] * 4, "y": [1.0] * 4, "batch_size": 4}, loss={"reduction": reduction}
        )
        found.append(weights(train(config, tmp_path).run_dir)["w"].item())
    assert found == pytest.approx([0.2, 0.8], rel=1e-6)


def test_a_regression_reports_no_accuracy(tmp_path):
    run = train(line(), tmp_path).run_dir
    assert not any("accuracy" in key for record in records(run) for key in record)


def test_a_regression_loss_on_classes_and_a_classification_loss_on_numbers_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"'losses:mse' is for regression, dataset .* is for classification"
    ):
        train(tiny(loss={"name": "mse"}), tmp_path)
    with pytest.raises(
        ConfigError, match=r"'losses:cross_entropy' is for classification, dataset .* regression"
    ):
        train({**line(), "loss": {"name": "cross_entropy"}}, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_class_weights_of_another_number_than_the_classes_are_shown_at_their_line(tmp_path):
    with pytest.raises(ConfigError, match="there are 2 weights, and the dataset has 3 classes") as raised:
        train(tiny(loss={"name": "cross_entropy", "class_weights": [1.0, 2.0]}), tmp_path)
    assert raised.value.diagnostics[0].path == "loss.class_weights"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        ({"name": "bce_with_logits"}, r"predictions have the shape \[2, 3\] and targets \[2\]"),
        ({"name": "focal", "binary": True}, r"targets lie between 0 and 2"),
        ({"name": "kl_div"}, "targets are int64, and a divergence takes a probability"),
        ({"name": "cosine_embedding"}, "a target is neither 1"),
        ({"name": "dice"}, r"regions need logits \[B, C, ...\]"),
    ],
)
def test_targets_that_a_loss_cannot_take_are_refused_before_a_run_exists(loss, says, tmp_path):
    """Three classes: the first two samples are of class 2 and 0, or of 0 and 1."""

    @register_dataset("three_classes")
    def build():
        targets = torch.tensor([0, 1, 0, 1] if loss["name"] == "bce_with_logits" else [2, 0, 1, 2])
        return Splits(TensorData(torch.randn(4, 4), targets), contract=DatasetContract((4,)))

    with pytest.raises(ConfigError, match=f"(?s)do not fit: .*{says}"):
        train(tiny(loss=loss, dataset={"name": "three_classes", "batch_size": 2}), tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["smooth_l1", "ssim"])
def test_losses_of_measurements_are_refused_for_classes_before_anything_is_built(name, tmp_path):
    with pytest.raises(ConfigError, match=f"'losses:{name}' is for regression, dataset .* classification"):
        train(tiny(loss={"name": name}), tmp_path)


@pytest.mark.parametrize("name", ["cross_entropy", "nll", "focal"])
def test_a_classification_reports_accuracy(name, tmp_path):
    run = train(tiny(loss={"name": name}, trainer={"epochs": 1}), tmp_path).run_dir
    assert {"train_accuracy", "val_accuracy"} <= set(records(run, "epoch")[0])


def test_the_accuracy_of_regions_is_the_share_of_their_pixels(tmp_path):
    """Class 0 everywhere, where 3 of 4 and 1 of 2 pixels that count are of it."""
    targets = torch.tensor([[0, 0, 0, 1], [0, 1, -100, -100]])

    @register_model("class_0_everywhere")
    class Everywhere(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([1.0, 0.0]))

        def forward(self, x):
            return self.bias.view(1, 2, 1).expand(len(x), 2, 4)

    @register_dataset("two_rows")
    def build():
        data = TensorData(torch.zeros(2, 1), targets)
        return Splits(data, data, contract=DatasetContract((1,), "classification", 2))

    config = tiny(
        model={"name": "class_0_everywhere"},
        dataset={"name": "two_rows", "batch_size": 1},
        loss={"name": "dice"},
        optimizer={"name": "sgd", "lr": 1e-9},
        trainer={"epochs": 1},
    )
    (epoch,) = records(train(config, tmp_path).run_dir, "epoch")
    assert epoch["val_accuracy"] == epoch["train_accuracy"] == pytest.approx(4 / 6)
