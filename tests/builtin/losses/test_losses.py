"""The built-in losses equal torch's."""

import math

import pytest
import torch
from torch.nn import functional

from support.by_hand import line
from support.runs import records, tiny, train, weights
from trainlattice.diagnostics.errors import ConfigError
from trainlattice_plugin_losses.losses import L1, CrossEntropy, MeanSquaredError
from trainlattice_plugin_losses.options import CrossEntropyOptions, RegressionOptions

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
