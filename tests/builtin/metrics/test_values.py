"""Every metric over uneven batches is torchmetrics' of the whole set at once."""

import math

import pytest
import torch

from support.runs import manifest, records, tiny, train

pytestmark = pytest.mark.torch
tm = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
image, text = (pytest.importorskip(f"torchmetrics.{domain}") for domain in ("image", "text"))
GENERATOR = torch.Generator().manual_seed(3)
N = 11  # batches of 4, 4 and 3


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR)


def uniform(*shape):
    return torch.rand(*shape, generator=GENERATOR)


def whole(end, *shape):
    return torch.randint(end, shape, generator=GENERATOR)


def logits(*shape):
    """The last batch has none outside of [0, 1]: torchmetrics by itself would take them for probabilities."""
    return torch.cat([normal(8, *shape) * 3, uniform(N - 8, *shape)])


CLASSES = logits(5), whole(5, N)
PROBABILITIES = uniform(N, 5).softmax(1), whole(5, N)
BINARY = logits(), whole(2, N)
LABELS = logits(3), torch.cat([torch.tensor([[0, 1, 0], [1, 0, 1]]), whole(2, N - 2, 3)])
PIXELS = logits(3, 4, 4), whole(3, N, 4, 4)
VALUES = normal(N, 2), normal(N, 2)
FAR = 1e4 + normal(N, 1), 1e4 + normal(N, 1)
IMAGES = uniform(N, 1, 16, 16), uniform(N, 1, 16, 16)
TOKENS = normal(N, 6, 7), whole(7, N, 6)
IGNORED = TOKENS[0], torch.where(whole(3, N, 6) == 0, -100, TOKENS[1])
MULTI = {"task": "multiclass", "num_classes": 5}

CASES = [
    ({"name": "accuracy"}, CLASSES, tm.Accuracy(**MULTI)),
    ({"name": "accuracy", "average": "macro"}, CLASSES, tm.Accuracy(**MULTI, average="macro")),
    ({"name": "accuracy", "average": "none"}, CLASSES, tm.Accuracy(**MULTI, average="none")),
    ({"name": "accuracy", "task": "binary"}, BINARY, tm.Accuracy(task="binary")),
    (
        {"name": "accuracy", "task": "binary", "logits": False, "threshold": 0.3},
        (uniform(N), BINARY[1]),
        tm.Accuracy(task="binary", threshold=0.3),
    ),
    ({"name": "accuracy", "task": "binary"}, (BINARY[0], BINARY[1].float()), tm.Accuracy(task="binary")),
    (
        {"name": "accuracy", "task": "multilabel", "num_labels": 3},
        LABELS,
        tm.Accuracy(task="multilabel", num_labels=3),
    ),
    (
        {"name": "accuracy", "num_classes": 3, "ignore_index": 0},
        PIXELS,
        tm.Accuracy(task="multiclass", num_classes=3, ignore_index=0),
    ),
    ({"name": "top_k", "top_k": 2}, CLASSES, tm.Accuracy(**MULTI, top_k=2)),
    ({"name": "f1"}, CLASSES, tm.F1Score(**MULTI, average="macro")),
    ({"name": "f1", "average": "micro"}, CLASSES, tm.F1Score(**MULTI, average="micro")),
    ({"name": "f1", "task": "binary"}, BINARY, tm.F1Score(task="binary")),
    (
        {"name": "f1", "task": "multilabel", "num_labels": 3, "average": "weighted"},
        LABELS,
        tm.F1Score(task="multilabel", num_labels=3, average="weighted"),
    ),
    ({"name": "precision"}, CLASSES, tm.Precision(**MULTI, average="macro")),
    ({"name": "precision", "task": "binary"}, BINARY, tm.Precision(task="binary")),
    ({"name": "recall", "average": "weighted"}, CLASSES, tm.Recall(**MULTI, average="weighted")),
    ({"name": "auroc"}, CLASSES, tm.AUROC(**MULTI)),
    ({"name": "auroc", "thresholds": 20}, CLASSES, tm.AUROC(**MULTI, thresholds=20)),
    ({"name": "auroc", "logits": False, "average": "none"}, PROBABILITIES, tm.AUROC(**MULTI, average="none")),
    ({"name": "auroc", "task": "binary", "max_fpr": 0.5}, BINARY, tm.AUROC(task="binary", max_fpr=0.5)),
    (
        {"name": "auroc", "task": "multilabel", "num_labels": 3, "thresholds": [0.2, 0.5, 0.8]},
        LABELS,
        tm.AUROC(task="multilabel", num_labels=3, thresholds=[0.2, 0.5, 0.8]),
    ),
    ({"name": "confusion_matrix"}, CLASSES, tm.ConfusionMatrix(**MULTI)),
    ({"name": "confusion_matrix", "normalize": True}, CLASSES, tm.ConfusionMatrix(**MULTI, normalize="true")),
    ({"name": "confusion_matrix", "task": "binary"}, BINARY, tm.ConfusionMatrix(task="binary")),
    ({"name": "mae"}, VALUES, tm.MeanAbsoluteError()),
    ({"name": "mae", "num_outputs": 2}, VALUES, tm.MeanAbsoluteError(num_outputs=2)),
    ({"name": "mse"}, VALUES, tm.MeanSquaredError()),
    ({"name": "mse", "squared": False}, VALUES, tm.MeanSquaredError(squared=False)),
    ({"name": "mse", "num_outputs": 2}, VALUES, tm.MeanSquaredError(num_outputs=2)),
    ({"name": "r2"}, VALUES, tm.R2Score()),
    ({"name": "r2", "adjusted": 2, "multioutput": "raw_values"}, VALUES, tm.R2Score(2, "raw_values")),
    ({"name": "psnr", "data_range": 1.0}, IMAGES, image.PeakSignalNoiseRatio(1.0)),
    (
        {"name": "psnr", "data_range": [0.2, 0.7], "base": 2.0},
        IMAGES,
        image.PeakSignalNoiseRatio((0.2, 0.7), base=2.0),
    ),
    ({"name": "ssim", "data_range": 1.0}, IMAGES, image.StructuralSimilarityIndexMeasure(data_range=1.0)),
    (
        {"name": "ssim", "data_range": [0.0, 1.0], "gaussian_kernel": False, "kernel_size": 5},
        IMAGES,
        image.StructuralSimilarityIndexMeasure(False, kernel_size=5, data_range=(0.0, 1.0)),
    ),
    ({"name": "perplexity"}, TOKENS, text.Perplexity()),
    ({"name": "perplexity"}, IGNORED, text.Perplexity(ignore_index=-100)),
    ({"name": "torchmetrics/MeanSquaredLogError"}, (uniform(N), uniform(N)), tm.MeanSquaredLogError()),
    ({"name": "torchmetrics/MulticlassF1Score"}, CLASSES, tm.classification.MulticlassF1Score(5)),
    (
        {"name": "torchmetrics/PeakSignalNoiseRatio", "data_range": [0.2, 0.7]},
        IMAGES,
        image.PeakSignalNoiseRatio((0.2, 0.7)),
    ),
    ({"name": "torchmetrics", "class": "PearsonCorrCoef"}, (normal(N), normal(N)), tm.PearsonCorrCoef()),
    (
        {"name": "torchmetrics/ROC", "task": "binary", "thresholds": 5},
        (uniform(N), BINARY[1]),
        tm.ROC(task="binary", thresholds=5),
    ),
]


def plain(value):
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value.double().tolist()


def flat(value):
    return [number for item in value for number in flat(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize(("settings", "data", "reference"), CASES, ids=lambda case: str(case)[:70])
def test_it_is_torchmetrics_of_the_whole_set(measured, settings, data, reference):
    preds, target = data
    classes = 5 if data is CLASSES or data is PROBABILITIES else None
    settings = {**settings, "as": "found", "phases": ["train", "val"]}
    run = measured(preds, target, settings, num_classes=classes).run_dir
    target = target.long() if settings.get("task") == "binary" else target
    expected = plain(reference(preds, target))
    (found,) = records(run, "epoch")
    for name in ("train_found", "val_found"):
        assert torch.tensor(found[name]).shape == torch.tensor(expected).shape
        assert flat(found[name]) == pytest.approx(flat(expected), rel=2e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "data", "expected"),
    [
        ({"name": "accuracy"}, CLASSES, (CLASSES[0].argmax(1) == CLASSES[1]).float().mean()),
        (
            {"name": "top_k", "top_k": 2},
            CLASSES,
            (CLASSES[0].topk(2).indices == CLASSES[1][:, None]).any(1).float().mean(),
        ),
        ({"name": "mae"}, VALUES, (VALUES[0] - VALUES[1]).abs().mean()),
        ({"name": "mse"}, VALUES, (VALUES[0] - VALUES[1]).square().mean()),
        (
            {"name": "psnr", "data_range": 2.0},
            IMAGES,
            10 * (4 / (IMAGES[0] - IMAGES[1]).square().mean()).log10(),
        ),
        (
            {"name": "r2"},
            FAR,
            1
            - (FAR[0] - FAR[1]).double().square().sum()
            / (FAR[1].double() - FAR[1].double().mean()).square().sum(),
        ),
        (
            {"name": "perplexity"},
            IGNORED,
            torch.nn.functional.cross_entropy(IGNORED[0].flatten(0, 1), IGNORED[1].flatten()).exp(),
        ),
    ],
    ids=lambda case: str(case)[:40],
)
def test_it_is_the_formula_in_plain_torch(measured, settings, data, expected):
    run = measured(*data, {**settings, "as": "found"}, num_classes=5 if data is CLASSES else None).run_dir
    assert records(run, "validation")[0]["val_found"] == pytest.approx(float(expected), rel=1e-5)


def test_f1_and_the_confusion_matrix_by_hand(measured):
    """Two of three zeros and one of two ones are right: F1 is 2*2/(2*2+1+1) = 2/3 and 2*1/(2*1+1+1) = 1/2."""
    right = torch.eye(2)
    preds, target = right[[0, 0, 1, 0, 1]], torch.tensor([0, 0, 0, 1, 1])
    run = measured(preds, target, {"name": "f1"}, {"name": "confusion_matrix"}, num_classes=2).run_dir
    (found,) = records(run, "validation")
    assert found["val_f1"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert found["val_confusion_matrix"] == [[2, 1], [1, 1]]


@pytest.mark.parametrize("name", ["accuracy", "f1", "auroc", "confusion_matrix"])
def test_for_a_yes_or_no_predictions_may_have_the_channel_that_targets_lack(measured, name):
    """As bce_with_logits takes them."""
    preds, target = BINARY
    settings = {"name": name, "task": "binary", "as": "it"}
    plain = records(measured(preds, target, settings).run_dir, "validation")[-1]["val_it"]
    assert plain is not None
    for channels in ((preds.unsqueeze(1), target), (preds.unsqueeze(1), target.unsqueeze(1))):
        found = records(measured(*channels, settings).run_dir, "validation")
        assert found[-1]["val_it"] == plain


def test_a_model_of_one_output_is_trained_and_measured_on_two_classes(tmp_path):
    config = tiny(
        model={"num_classes": 1},
        dataset={"num_classes": 2},
        loss={"name": "bce_with_logits"},
        trainer={"monitor": "val_f1", "epochs": 20},
    )
    run = train({**config, "metrics": [{"name": "f1", "task": "binary"}]}, tmp_path).run_dir
    assert manifest(run)["best_metric"] > 0.7
    assert "val_accuracy" not in records(run, "validation")[-1]


def test_the_mean_of_a_key_counts_every_value_once(measured):
    values, target = normal(N, 3), whole(2, N)
    every = {"name": "mean", "inputs": {"value": "pred"}}
    run = measured(values, target, every, {**every, "as": "target", "inputs": {"value": "target"}}).run_dir
    (found,) = records(run, "validation")
    assert found["val_mean"] == pytest.approx(float(tm.MeanMetric()(values)), abs=1e-6)
    assert found["val_target"] == pytest.approx(float(target.float().mean()))


def test_the_mean_of_a_number_for_each_batch_is_weighted_by_samples(tmp_path):
    from support.runs import tiny, train

    loss = {"name": "mean", "inputs": {"value": "loss", "weight": "weight"}}
    run = train({**tiny(), "metrics": [loss]}, tmp_path).run_dir
    for found in records(run, "validation"):
        assert found["val_mean"] == pytest.approx(found["val_loss"], rel=1e-6)


def test_half_precision_is_summed_in_single(measured):
    """Of 0.1 in bfloat16, 1999 times: the sum is 200.1, and 200 in bfloat16."""
    from trainlattice_plugin_metrics.options import MaeOptions
    from trainlattice_plugin_metrics.regression import mae

    metric, tenth = mae(MaeOptions()), torch.full((1999,), 0.1, dtype=torch.bfloat16)
    metric.update(preds=tenth, target=torch.zeros(1999))
    assert metric.compute() == pytest.approx(float(tenth[0]), rel=1e-6)
    half = mae(MaeOptions())
    half.update(preds=tenth, target=torch.zeros(1999, dtype=torch.bfloat16))
    assert half.compute() == pytest.approx(float(tenth[0]), rel=1e-6)


def test_a_token_that_was_held_impossible_gives_a_number():
    from trainlattice_plugin_metrics.options import PerplexityOptions
    from trainlattice_plugin_metrics.perplexity import perplexity

    metric = perplexity(PerplexityOptions())
    metric.update(preds=torch.tensor([[[0.0, 200.0]]]), target=torch.tensor([[0]]))
    assert metric.compute() == pytest.approx(math.exp(200), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "direction"),
    [
        ({"name": "f1"}, "max"),
        ({"name": "auroc"}, "max"),
        ({"name": "mae", "inputs": {"preds": "pred", "target": "pred"}}, "min"),
        ({"name": "torchmetrics/CohenKappa", "task": "multiclass"}, "max"),
    ],
    ids=str,
)
def test_as_monitor_it_has_its_natural_direction(measured, settings, direction):
    trainer = {"monitor": "val_found"}
    result = measured(*CLASSES, {**settings, "as": "found"}, num_classes=5, trainer=trainer)
    assert manifest(result.run_dir)["monitor_direction"] == direction
    assert math.isfinite(result.best_metric)


def test_accuracies_have_names_beside_that_of_core(measured):
    binary = {"name": "accuracy", "task": "binary", "inputs": {"preds": "target", "target": "target"}}
    run = measured(PROBABILITIES[0][:, :2], whole(2, N), {"name": "accuracy"}, binary, num_classes=2).run_dir
    assert {"val_accuracy_micro", "val_accuracy_binary"} <= records(run, "validation")[0].keys()


def test_values_have_the_name_of_the_class_in_records():
    classes = ["KLDivergence", "MulticlassF1Score", "R2Score"]
    from trainlattice_plugin_metrics.options import AnyClassOptions

    names = [AnyClassOptions.model_validate({"class": name}).record_name() for name in classes]
    assert names == ["kl_divergence", "multiclass_f1_score", "r2_score"]


def test_a_phase_of_one_sample_has_no_variance_to_explain():
    from trainlattice_plugin_metrics.options import R2Options
    from trainlattice_plugin_metrics.regression import r2

    metric = r2(R2Options())
    metric.update(preds=torch.ones(1), target=torch.zeros(1))
    assert math.isnan(metric.compute())
