"""Options and inputs that a metric cannot take, each shown at its place before the run."""

import pytest
import torch

from support.configs import write_tiny
from support.runs import run_dirs
from trainlattice import run_from_file
from trainlattice.config.resolve import resolve_mapping
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch
pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")


def problems(directory, metric, **run):
    """What is shown of a metric that stands in a file, each with its path and the text at its place."""
    path = write_tiny(directory)
    path.write_text(f"{path.read_text()}\nmetrics:\n{metric}\n")
    with pytest.raises(ConfigError) as raised:
        run_from_file(path, **run)
    assert run_dirs(directory) == []
    return [
        (found.path, found.mark.text[found.mark.column - 1 :], found.message)
        for found in raised.value.diagnostics
    ]


@pytest.mark.parametrize(
    ("metric", "path", "place", "message"),
    [
        ("  - name: f1\n    averge: macro", "averge", "averge", "unknown option 'averge'"),
        ("  - name: f1\n    average: mean", "average", "mean", "'micro', 'macro', 'weighted' or 'none'"),
        ("  - name: f1\n    num_classes: 1", "num_classes", "1", "greater than or equal to 2"),
        (
            "  - name: f1\n    task: binary\n    num_classes: 2",
            "num_classes",
            "2",
            "num_classes is for task multiclass, and task is binary",
        ),
        (
            "  - name: f1\n    threshold: 0.4",
            "threshold",
            "0.4",
            "threshold is for task binary or multilabel",
        ),
        ("  - name: auroc\n    max_fpr: 0.4", "max_fpr", "0.4", "max_fpr is for task binary"),
        ("  - name: f1\n    task: multilabel", "", "f1", "multilabel needs num_labels"),
        ("  - name: top_k", "top_k", "name: top_k", "the 5 largest of 3 classes are not there"),
        ("  - name: top_k\n    top_k: 4", "top_k", "4", "the 4 largest of 3 classes are not there"),
        ("  - name: psnr", "data_range", "psnr", "needs the option 'data_range'"),
        ("  - name: psnr\n    data_range: -1.0", "data_range", "-1.0", "greater than 0"),
        (
            "  - name: ssim\n    data_range: [1.0, 0.0]",
            "data_range",
            "[1.0, 0.0]",
            "the highest value is above",
        ),
        ("  - name: ssim\n    data_range: 1.0\n    kernel_size: 4", "kernel_size", "4", "odd, not 4"),
        ("  - name: auroc\n    thresholds: [0.5, 2.0]", "thresholds.1", "2.0", "less than or equal to 1"),
        (
            "  - name: torchmetrics/CohenKapa",
            "class",
            "name: torchmetrics/CohenKapa",
            "has no metric 'CohenKapa': did you mean 'CohenKappa'?",
        ),
        (
            "  - name: torchmetrics\n    class: CohenKapa",
            "class",
            "CohenKapa",
            "has no metric 'CohenKapa': did you mean 'CohenKappa'?",
        ),
        (
            "  - name: torchmetrics/MinkowskiDistance\n    q: 2",
            "q",
            "2",
            "torchmetrics' MinkowskiDistance has no option 'q'; options: compute_on_cpu, p",
        ),
        (
            "  - name: torchmetrics/CohenKappa\n    task: multiclass\n    weight: linear",
            "weight",
            "linear",
            "has no option 'weight'; did you mean 'weights'?; options: compute_on_cpu, ignore_index, num_classes",
        ),
        (
            "  - name: torchmetrics/CohenKappa\n    task: multiclass\n    weights: cubic",
            "weights",
            "cubic",
            "refuses its options: Expected argument `weight` to be one of",
        ),
        (
            "  - name: torchmetrics/MinkowskiDistance",
            "class",
            "name: torchmetrics/MinkowskiDistance",
            "torchmetrics' MinkowskiDistance needs the option 'p'",
        ),
        (
            "  - name: torchmetrics/CohenKappa\n    class: F1Score",
            "class",
            "class: F1Score",
            "has 'class' in its name already",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_an_option_is_refused_at_its_place(tmp_path, metric, path, place, message):
    found = problems(tmp_path, metric)  # two where a value may be of two types
    shown = [text for where, text, said in found if message in said]
    assert [where for where, _, said in found if message in said] == [f"metrics.0.{path}".rstrip(".")], found
    assert shown[0].startswith(place)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("{name: mae}", "(preds: pred [2, 3] float32, target: target [2] int64)"),
        ("{name: perplexity}", "logits are [B, T, V] and tokens [B, T]; here are [2, 3] and [2]"),
        ("{name: accuracy, as: a, task: binary}", "preds: pred [2, 3] float32"),
        ("{name: f1, num_classes: 4}", "should be equal to number of classes"),
        (
            "{name: f1, inputs: {preds: pred, labels: target}}",
            "its inputs are preds, target; here are preds, labels",
        ),
        ("{name: mean}", "its inputs are value, weight (may be left out); here are preds, target"),
        (
            "{name: mean, inputs: {value: loss}}",
            "value is one number for the batch: name the key of its weight too",
        ),
        ("{name: f1, inputs: {preds: pred/x, target: target}}", "needs the key 'pred/x'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_inputs_that_do_not_fit_are_shown_with_what_they_are(tmp_path, metric, message):
    ((path, _, found),) = problems(tmp_path, f"  - {metric}")
    assert path == "metrics.0"
    assert message in found


def test_classes_that_the_dataset_does_not_state_have_to_be_given(measured):
    data = torch.randn(8, 3), torch.randint(3, (8,))
    with pytest.raises(ConfigError, match="needs num_classes: the dataset states no classes") as raised:
        measured(*data, {"name": "f1"})
    assert raised.value.diagnostics[0].path == "metrics.0.num_classes"
    assert measured(*data, {"name": "f1", "num_classes": 3}).status == "finished"


def test_probabilities_that_are_none_are_refused(measured):
    data = 3 * torch.randn(8), torch.randint(2, (8,))
    with pytest.raises(ConfigError, match="values outside of \\[0, 1\\], and logits: false"):
        measured(*data, {"name": "f1", "task": "binary", "logits": False})


def test_float_targets_that_are_no_labels_are_refused(measured):
    data = torch.randn(8), torch.full((8,), 0.5)
    with pytest.raises(ConfigError, match="target has values that are no whole numbers"):
        measured(*data, {"name": "f1", "task": "binary"})


def test_every_default_reads_back_from_a_resolved_configuration(tmp_path):
    from support.runs import tiny

    names = ["f1", "top_k", "auroc", "confusion_matrix", "mae", "r2", "perplexity", "mean"]
    metrics = [{"name": name} for name in names]
    metrics += [
        {"name": "accuracy", "as": "a", "task": "binary"},
        {"name": "psnr", "data_range": [0.0, 1.0]},
        {"name": "torchmetrics/CohenKappa", "task": "multiclass"},
    ]
    resolved = resolve_mapping({**tiny(), "metrics": metrics}).config.as_plain()
    assert resolve_mapping(resolved).config.as_plain() == resolved
    assert resolved["metrics"][-1]["class"] == "CohenKappa"
    assert resolved["metrics"][-1]["task"] == "multiclass"
