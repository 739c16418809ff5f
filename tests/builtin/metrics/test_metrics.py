"""Metrics of torchmetrics: over uneven batches as on the whole set at once, over a resume, with their direction."""

import signal

import pytest
import torch

torchmetrics = pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")

from support.runs import assert_same_end, checkpoint, manifest, records, run_dirs, train  # noqa: E402
from trainlattice import Callback, Options, register_dataset, register_model  # noqa: E402
from trainlattice.contracts.records import DatasetContract  # noqa: E402
from trainlattice.data import Splits  # noqa: E402
from trainlattice.diagnostics.errors import ConfigError, RunTerminated  # noqa: E402

pytestmark = pytest.mark.torch
SIZE = 23
FORMS = {
    "classes": ((4,), torch.randint(0, 4, (SIZE,), generator=torch.Generator().manual_seed(1))),
    "values": ((2,), torch.randn(SIZE, 2, generator=torch.Generator().manual_seed(2))),
    "labels": ((3,), torch.randint(0, 2, (SIZE, 3), generator=torch.Generator().manual_seed(3))),
    "yes": ((), torch.randint(0, 2, (SIZE,), generator=torch.Generator().manual_seed(4))),
    "images": ((1, 12, 12), torch.rand(SIZE, 1, 12, 12, generator=torch.Generator().manual_seed(5))),
    "tokens": ((5, 7), torch.randint(0, 7, (SIZE, 5), generator=torch.Generator().manual_seed(6))),
}


def predictions(form):
    shape, _ = FORMS[form]
    found = torch.rand(SIZE, *shape, generator=torch.Generator().manual_seed(7))
    return found if form in ("images", "yes", "labels") else found * 4 - 2


class FormOptions(Options):
    form: str
    known: bool = True

    def contract(self):
        classes = 4 if self.form == "classes" and self.known else None
        return DatasetContract(None, "classification" if classes else None, classes)


class Given(torch.utils.data.Dataset):
    """The predictions themselves as the input."""

    def __init__(self, form):
        self.preds, self.target = predictions(form), FORMS[form][1]

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return {"input": self.preds[index], "target/zero": torch.zeros(1), "target/own": self.target[index]}


@register_dataset("given", options=FormOptions)
def open_given(options):
    return Splits(Given(options.form), Given(options.form), Given(options.form), contract=options.contract())


@register_model("as_given")
class AsGiven(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return {"own": x, "w": self.w.expand(len(x), 1)}


def config(form, *metrics, known=True, **trainer):
    inputs = {"preds": "pred/own", "target": "target/own"}
    return {
        "model": "as_given",
        "dataset": {"name": "given", "form": form, "batch_size": 5, "known": known},
        "loss": {"name": "mse", "pred_key": "pred/w", "target_key": "target/zero"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "metrics": [{"inputs": inputs, **metric} for metric in metrics],
        "trainer": {"epochs": 1, "device": "cpu", **trainer},
    }


def accuracy_by_hand(preds, target):
    return (preds.argmax(1) == target).double().mean()


def f1_by_hand(preds, target):
    found = preds.argmax(1)
    scores = []
    for number in range(4):
        right = ((found == number) & (target == number)).sum()
        scores.append(2 * right / ((found == number).sum() + (target == number).sum()))
    return torch.stack(scores).mean()


def r2_by_hand(preds, target):
    left = (target - preds).square().sum(0)
    return (1 - left / (target - target.mean(0)).square().sum(0)).mean()


def psnr_by_hand(preds, target):
    return 10 * torch.log10(1 / (preds - target).square().mean())


def perplexity_by_hand(preds, target):
    return torch.nn.functional.cross_entropy(preds.flatten(0, 1), target.flatten()).exp()


METRICS = [
    ("classes", {"name": "accuracy"}, accuracy_by_hand),
    ("classes", {"name": "f1", "average": "macro"}, f1_by_hand),
    ("classes", {"name": "top_k", "k": 2}, torchmetrics.Accuracy("multiclass", num_classes=4, top_k=2)),
    ("classes", {"name": "precision", "average": "none"},
     torchmetrics.Precision("multiclass", num_classes=4, average=None)),
    ("classes", {"name": "recall", "average": "weighted"},
     torchmetrics.Recall("multiclass", num_classes=4, average="weighted")),
    ("classes", {"name": "auroc"}, torchmetrics.AUROC("multiclass", num_classes=4)),
    ("classes", {"name": "confusion_matrix"}, torchmetrics.ConfusionMatrix("multiclass", num_classes=4)),
    ("classes", {"name": "accuracy", "ignore_index": 2},
     torchmetrics.Accuracy("multiclass", num_classes=4, ignore_index=2, average="micro")),
    ("yes", {"name": "accuracy", "task": "binary", "threshold": 0.3},
     lambda p, t: ((p > 0.3) == t).double().mean()),
    ("yes", {"name": "auroc", "task": "binary", "thresholds": 20}, torchmetrics.AUROC("binary", thresholds=20)),
    ("labels", {"name": "f1", "task": "multilabel", "num_labels": 3, "average": "macro"},
     torchmetrics.F1Score("multilabel", num_labels=3, average="macro")),
    ("values", {"name": "mae"}, lambda p, t: (p - t).abs().mean()),
    ("values", {"name": "mse"}, lambda p, t: (p - t).square().mean()),
    ("values", {"name": "mse", "squared": False}, lambda p, t: (p - t).square().mean().sqrt()),
    ("values", {"name": "r2"}, r2_by_hand),
    ("images", {"name": "psnr", "data_range": 1.0}, psnr_by_hand),
    ("images", {"name": "ssim", "data_range": 1.0},
     torchmetrics.image.StructuralSimilarityIndexMeasure(data_range=1.0)),
    ("tokens", {"name": "perplexity"}, perplexity_by_hand),
    ("values", {"name": "mean", "inputs": {"value": "pred/own"}}, lambda p, t: p.mean()),
    ("values", {"name": "torchmetrics", "class": "LogCoshError", "arguments": {"num_outputs": 2}},
     lambda p, t: torch.log(torch.cosh(p.double() - t)).mean(0)),
]  # fmt: skip


@pytest.mark.parametrize(("form", "metric", "expected"), METRICS, ids=[str(m[1]) for m in METRICS])
def test_a_value_over_uneven_batches_is_that_of_the_whole_set(tmp_path, form, metric, expected):
    (found,) = records(train(config(form, {**metric, "as": "own"}), tmp_path).run_dir, "validation")
    value = expected(predictions(form), FORMS[form][1])
    assert torch.allclose(torch.tensor(found["val_own"]).double(), value.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("metric", "direction"),
    [({"name": "f1"}, "max"), ({"name": "auroc"}, "max"), ({"name": "top_k", "k": 2}, "max")],
)
def test_a_monitor_has_the_natural_direction(tmp_path, metric, direction):
    run = train(config("classes", metric, monitor=f"val_{metric['name']}"), tmp_path).run_dir
    assert manifest(run)["monitor_direction"] == direction


def test_errors_are_better_when_smaller(tmp_path):
    run = train(config("values", {"name": "mae"}, monitor="val_mae"), tmp_path).run_dir
    assert manifest(run)["monitor_direction"] == "min"


@pytest.mark.parametrize("step", [1, 3, 5, 7])
def test_a_run_is_resumed_in_the_middle_of_what_is_measured(tmp_path, step):
    """auroc keeps every score; the fifth step ends an epoch."""

    class Stops(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == step:
                signal.raise_signal(signal.SIGTERM)

    names = ("auroc", "f1", "confusion_matrix")
    settings = config("classes", *({"name": name, "phases": ["train", "val"]} for name in names), epochs=2)
    whole = train(settings, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(RunTerminated):
        train(settings, tmp_path, extra_callbacks=[Stops()])
    (first,) = run_dirs(tmp_path)
    assert step == 5 or checkpoint(first)["states"]["metrics"]["auroc"]
    end = train(settings, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir
    assert_same_end(whole, end)
    fields = [f"{phase}_{name}" for phase in ("train", "val") for name in names]
    expected = [[r[field] for field in fields] for r in records(whole, "epoch")]
    assert [[r[field] for field in fields] for run in (first, end) for r in records(run, "epoch")] == expected


# --- mistakes


def refused(tmp_path, settings):
    with pytest.raises(ConfigError) as raised:
        train(settings, tmp_path)
    assert run_dirs(tmp_path) == []
    return str(raised.value)


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ({"name": "accuracy", "num_labels": 3}, "num_labels"),
        ({"name": "accuracy", "task": "binary", "num_classes": 3}, "num_classes"),
        ({"name": "f1", "task": "multilabel"}, "num_labels"),
        ({"name": "top_k", "k": 4}, "all of 4 classes are among so many"),
        ({"name": "top_k", "task": "binary"}, "the largest k of several scores"),
        ({"name": "f1", "task": "binary", "top_k": 2}, "the largest k of several scores"),
        ({"name": "f1", "avrage": "macro"}, "did you mean 'average'?"),
        ({"name": "psnr"}, "data_range"),
        ({"name": "ssim", "data_range": 1.0, "kernel_size": 4}, "must be odd"),
        ({"name": "torchmetrics", "class": "MeanSquaredErr"}, "near: MeanSquaredError"),
        ({"name": "torchmetrics", "class": "MeanSquaredError", "arguments": {"square": True}}, "takes squared"),
        ({"name": "mae"}, "metric 'mae' cannot take what it is given (preds: pred/own [2, 4] float32"),
    ],
)  # fmt: skip
def test_mistakes_are_shown_before_the_run(tmp_path, metric, says):
    text = refused(tmp_path, config("classes", metric))
    assert says in text
    assert "metrics.0" in text


def test_classes_must_be_known(tmp_path):
    text = refused(tmp_path, config("classes", {"name": "f1"}, known=False))
    assert "the dataset does not say how many classes there are" in text
    train(config("classes", {"name": "f1", "num_classes": 4}, known=False), tmp_path)
