"""State in checkpoints, phases without samples, and what a batch costs."""

import math
import signal

import pytest
import torch

from support.cli import modules_after
from support.configs import write_tiny
from support.runs import assert_same_end, checkpoint, records, run_dirs, tiny, train
from trainlattice import Callback
from trainlattice.contracts.records import DatasetContract
from trainlattice.diagnostics.errors import CheckpointError, RunTerminated
from trainlattice.training.metrics import NamedMetric, PhaseMetrics

pytestmark = pytest.mark.torch
pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

from trainlattice_plugin_metrics import any_class, classification, perplexity, regression  # noqa: E402
from trainlattice_plugin_metrics.mean import mean  # noqa: E402
from trainlattice_plugin_metrics.options import (  # noqa: E402
    AccuracyOptions,
    AnyClassOptions,
    AurocOptions,
    ConfusionMatrixOptions,
    MaeOptions,
    MseOptions,
    PerplexityOptions,
    PsnrOptions,
    R2Options,
    ScoreOptions,
    SsimOptions,
    TopKOptions,
)

THREE = DatasetContract((3,), "classification", 3)
PREDS, TARGET = torch.randn(4, 3), torch.tensor([0, 1, 2, 1])
IMAGES = torch.rand(2, 1, 16, 16), torch.rand(2, 1, 16, 16)
TOKENS = torch.randn(2, 5, 7), torch.randint(7, (2, 5))

METRICS = {
    "accuracy": (classification.accuracy(AccuracyOptions(), THREE), PREDS, TARGET),
    "top_k": (classification.accuracy(TopKOptions(top_k=2), THREE), PREDS, TARGET),
    "f1": (classification.f1(ScoreOptions(), THREE), PREDS, TARGET),
    "f1 binary": (classification.f1(ScoreOptions(task="binary"), THREE), PREDS[:, 0], TARGET % 2),
    "precision": (classification.precision(ScoreOptions(), THREE), PREDS, TARGET),
    "recall": (classification.recall(ScoreOptions(), THREE), PREDS, TARGET),
    "auroc": (classification.auroc(AurocOptions(), THREE), PREDS, TARGET),
    "auroc binned": (classification.auroc(AurocOptions(thresholds=9), THREE), PREDS, TARGET),
    "confusion_matrix": (
        classification.confusion_matrix(ConfusionMatrixOptions(), THREE),
        PREDS,
        TARGET,
    ),
    "mae": (regression.mae(MaeOptions()), PREDS, PREDS + 1),
    "mse": (regression.mse(MseOptions()), PREDS, PREDS + 1),
    "r2": (regression.r2(R2Options()), PREDS, PREDS + 1),
    "psnr": (regression.psnr(PsnrOptions(data_range=1.0)), *IMAGES),
    "ssim": (regression.ssim(SsimOptions(data_range=1.0)), *IMAGES),
    "perplexity": (perplexity.perplexity(PerplexityOptions()), *TOKENS),
    "any": (
        any_class.build(AnyClassOptions(**{"class": "PearsonCorrCoef"}), THREE),
        PREDS[:, 0],
        PREDS[:, 1],
    ),
}
WAITING = {"f1", "precision", "recall", "auroc binned", "confusion_matrix", "any"}
"""Torchmetrics counts by bincount there, or compares numbers of samples."""


def inputs(name):
    _, preds, target = METRICS[name]
    return {"preds": preds, "target": target}


@pytest.fixture(params=METRICS)
def name(request):
    METRICS[request.param][0].reset()
    return request.param


def test_where_nothing_was_seen_the_value_is_nan_without_a_warning(name):
    assert math.isnan(METRICS[name][0].compute())


def test_a_state_goes_on_where_it_was_taken(name):
    """Through a file, and apart from the object that it was taken from."""
    metric = METRICS[name][0]
    empty = metric.state_dict()
    metric.update(**inputs(name))
    state = metric.state_dict()
    metric.update(**inputs(name))
    twice, first = metric.compute(), metric.state_dict()
    metric.load_state_dict(state)
    metric.update(**inputs(name))
    assert metric.compute() == twice
    second = metric.state_dict()
    assert str(first) == str(second)
    metric.load_state_dict(state)
    assert str(metric.state_dict()) == str(state)
    metric.load_state_dict(empty)
    assert math.isnan(metric.compute())


@pytest.mark.parametrize("name", [name for name in METRICS if name not in WAITING])
def test_after_the_first_batch_no_value_is_read(name):
    """A meta tensor has none."""
    metric = METRICS[name][0]
    metric.reset()
    metric.update(**inputs(name))
    metric.to("meta")
    try:
        metric.update(**{key: value.to("meta") for key, value in inputs(name).items()})
    finally:
        metric.to_empty(device="cpu")
        metric.reset()
        METRICS[name] = (metric.to("cpu"), *METRICS[name][1:])


def test_a_mean_reads_no_value_either():
    metric = mean().to("meta")
    metric.update(value=torch.ones(3, device="meta"))
    metric.update(value=torch.ones((), device="meta"), weight=2.0)


def test_a_count_of_a_metric_that_keeps_it_beside_its_states_is_kept():
    """RunningMean of two: 1, 2, | 6 gives 4, and a count that began anew would give another number."""

    def running():
        return any_class.build(AnyClassOptions(**{"class": "RunningMean", "window": 2}), THREE)

    one, other = running(), running()
    for value in (1.0, 2.0, 3.0):
        one.update(value=torch.tensor(value))
    other.load_state_dict(one.state_dict())
    for metric in (one, other):
        metric.update(value=torch.tensor(6.0))
    assert one.compute() == other.compute() == 4.5


LOGGED = [
    {"name": "auroc"},
    {"name": "f1"},
    {"name": "confusion_matrix", "normalize": "pred"},
    {"name": "mean", "inputs": {"value": "loss", "weight": "weight"}},
    {"name": "torchmetrics/MulticlassCohenKappa"},
    {"name": "torchmetrics/RunningMean", "window": 2, "inputs": {"value": "loss"}},
]
SETTINGS = {**tiny(), "metrics": [{**metric, "phases": ["train", "val"]} for metric in LOGGED]}


@pytest.mark.parametrize("step", [1, 2, 4])
@pytest.mark.filterwarnings("ignore:No (positive|negative) samples:UserWarning")
@pytest.mark.filterwarnings("ignore:.*NaN values found in confusion matrix:UserWarning")
def test_a_run_is_resumed_inside_an_epoch_bit_for_bit(tmp_path, step):
    class Stops(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == step:
                signal.raise_signal(signal.SIGTERM)

    whole = train(SETTINGS, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(RunTerminated):
        train(SETTINGS, tmp_path, extra_callbacks=[Stops()])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["states"]["metrics"].keys() == {
        "auroc",
        "f1",
        "confusion_matrix",
        "mean",
        "multiclass_cohen_kappa",
        "running_mean",
    }
    end = train(SETTINGS, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir
    assert_same_end(whole, end)
    measured = [
        name
        for name in records(whole, "epoch")[0]
        if name.partition("_")[2] in checkpoint(first)["states"]["metrics"]
    ]
    assert len(measured) == 12
    expected = [[r[name] for name in measured] for r in records(whole, "epoch")]
    assert [[r[name] for name in measured] for run in (first, end) for r in records(run, "epoch")] == expected


def of_four_classes():
    return classification.f1(ScoreOptions(num_classes=4), THREE)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda: METRICS["auroc"][0], "it lacks preds, target"),
        (of_four_classes, r"tp has the shape \[3\], and here \[4\]"),
        (lambda: any_class.build(AnyClassOptions(**{"class": "RunningMean"}), THREE), "it holds the parts"),
    ],
)
def test_a_state_of_another_metric_is_refused_by_name(other, text):
    metric = classification.f1(ScoreOptions(), THREE)
    metric.update(preds=PREDS, target=TARGET)
    phase = PhaseMetrics([NamedMetric("f1", other(), {})])
    with pytest.raises(CheckpointError, match=f"the state of the metric 'f1' does not fit this run: {text}"):
        phase.load_state_dict({"f1": metric.state_dict()})


def test_a_run_without_metrics_imports_no_torchmetrics(tmp_path):
    write_tiny(tmp_path)
    run = "from trainlattice import run_from_file\nrun_from_file('tiny.yaml')"
    modules = modules_after(run, cwd=tmp_path)
    assert "torch" in modules
    assert "torchmetrics" not in modules


def test_a_configuration_with_metrics_is_checked_without_torch(tmp_path):
    path = write_tiny(tmp_path)
    path.write_text(path.read_text() + "\nmetrics:\n  - name: f1\n  - name: torchmetrics/CohenKappa\n")
    check = "from trainlattice.config.resolve import resolve_file\nresolve_file('tiny.yaml')"
    modules = modules_after(check, cwd=tmp_path)
    assert "trainlattice_plugin_metrics" in modules
    assert not modules & {"torch", "torchmetrics", "numpy"}
