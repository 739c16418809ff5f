"""One window: what accumulation computes, and the phases of a mode."""

import pytest
import torch
from torch import nn

from support.by_hand import Line, LineOptions, line
from support.runs import InOrder, assert_identical, records, tiny, train, weights
from trainlattice import Callback, register_dataset, register_loss, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.training.mode import Mode, Phase
from trainlattice.training.nonfinite import FiniteGuard
from trainlattice.training.precision import autocast
from trainlattice.training.step import Stepper
from trainlattice.training.strategy import SingleDevice
from trainlattice.training.update import Update

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
ONES = [1.0] * 10


def w(run_dir):
    return weights(run_dir)["w"].item()


def test_the_ragged_last_window_counts_by_its_own_samples(tmp_path):
    """Batches 4, 4, 2: gradients -2 over eight samples, then -1.6 over two: 0 -> 0.2 -> 0.36."""
    config = line(dataset={"x": ONES, "y": ONES, "batch_size": 4}, trainer={"accumulate": 2})
    result = train(config, tmp_path)
    assert w(result.run_dir) == pytest.approx(0.36, rel=1e-6)
    assert result.global_step == 2


def test_without_accumulation_every_batch_is_a_step(tmp_path):
    """0 -> 0.2 -> 0.36 -> 0.488"""
    result = train(line(dataset={"x": ONES, "y": ONES, "batch_size": 4}), tmp_path)
    assert w(result.run_dir) == pytest.approx(0.488, rel=1e-6)
    assert result.global_step == 3


def test_micro_batches_of_different_sizes_are_weighted_by_their_samples(tmp_path):
    """One window of batches 4 and 1: the gradient is 2 (0 - 5/5), whichever batch holds the sample y = 5."""
    y = [0.0, 0.0, 0.0, 0.0, 5.0]
    config = line(dataset={"x": [1.0] * 5, "y": y, "batch_size": 4}, trainer={"accumulate": 2})
    assert w(train(config, tmp_path).run_dir) == pytest.approx(0.2, rel=1e-6)


def test_a_sum_is_not_divided_among_micro_batches(tmp_path):
    """Eight samples in two batches: the gradient of the sum is -16 and the step 0.001 * 16."""
    config = line(
        dataset={"x": [1.0] * 8, "y": [1.0] * 8, "batch_size": 4},
        loss={"reduction": "sum"},
        optimizer={"lr": 0.001},
        trainer={"accumulate": 2},
    )
    run = train(config, tmp_path).run_dir
    assert w(run) == pytest.approx(0.016, rel=1e-6)
    assert records(run, "batch")[0]["loss"] == 1.0


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_accumulating_equals_a_batch_as_large_as_the_window(tmp_path, optimizer):
    """20 samples: windows of 8, 8 and 4, from batches of 4 or of 8."""
    model = {"name": "mlp", "input_dim": 4, "hidden_dims": [8], "num_classes": 3, "dropout": 0.0}
    runs = []
    for batch_size, accumulate in ((8, 1), (4, 2), (2, 4)):
        config = tiny(
            model=model,
            dataset={"batch_size": batch_size},
            optimizer={"name": optimizer, "lr": 0.01},
            trainer={"accumulate": accumulate, "max_grad_norm": 0.5},
        )
        runs.append(train(config, tmp_path).run_dir)
    for run in runs[1:]:
        for one, other in zip(weights(runs[0]).values(), weights(run).values(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
        for one, other in zip(records(runs[0], "batch"), records(run, "batch"), strict=True):
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-5)
            assert one["step"] == other["step"]


def test_schedule_and_records_count_optimizer_steps_not_batches(tmp_path):
    runs = [
        train(
            line(
                dataset={"x": [1.0] * 16, "y": [1.0] * 16, "batch_size": batch_size},
                scheduler={"name": "warmup_linear", "warmup_steps": 2},
                trainer={"accumulate": accumulate},
            ),
            tmp_path,
        ).run_dir
        for batch_size, accumulate in ((4, 1), (1, 4))
    ]
    for run in runs:
        assert [record["lr"] for record in records(run, "batch")] == pytest.approx([0.05, 0.1, 0.1, 0.05])
        assert [record["step"] for record in records(run, "batch")] == [1, 2, 3, 4]
    assert w(runs[0]) == pytest.approx(w(runs[1]), rel=1e-6)


def test_the_logged_loss_is_the_mean_over_the_window_whatever_its_parts(tmp_path):
    """Windows of 8 and 2: losses (0 - 1)^2 and (0.2 - 1)^2; the epoch is their mean over ten samples."""
    config = line(dataset={"x": ONES, "y": ONES, "batch_size": 4}, trainer={"accumulate": 2})
    run = train(config, tmp_path).run_dir
    assert [record["loss"] for record in records(run, "batch")] == pytest.approx([1.0, 0.64], rel=1e-6)
    assert records(run, "epoch")[0]["train_loss"] == pytest.approx(0.928, rel=1e-6)


# --- losses that declare their own weight


class Masked(nn.Module):
    """Mean of ``(pred - target)^2`` over targets that are not negative."""

    task = "regression"

    def forward(self, pred, target):
        kept = target >= 0
        return (pred[kept] - target[kept]).square().mean()

    def num_terms(self, target):
        return (target >= 0).sum()


@register_loss("masked_mse")
def masked_mse():
    return Masked()


def masked(y, **sections):
    return {**line(dataset={"x": [1.0] * len(y), "y": y}, **sections), "loss": {"name": "masked_mse"}}


@pytest.mark.parametrize(("batch_size", "accumulate"), [(6, 1), (3, 2), (2, 3), (1, 6)])
def test_a_window_is_normalised_by_the_weight_that_its_loss_declares(tmp_path, batch_size, accumulate):
    """Of six targets three count: the gradient is -2 (4 + 1 + 1) / 3 = -4, wherever they stand."""
    config = masked([4.0, -1.0, 1.0, -1.0, -1.0, 1.0], trainer={"accumulate": accumulate})
    config["dataset"]["batch_size"] = batch_size
    run = train(config, tmp_path).run_dir
    assert w(run) == pytest.approx(0.4, rel=1e-6)
    assert records(run, "batch")[0]["loss"] == pytest.approx((16 + 1 + 1) / 3)
    assert records(run, "epoch")[0]["train_loss"] == pytest.approx((16 + 1 + 1) / 3)


def test_windows_of_different_weight_count_by_it_in_the_epoch(tmp_path):
    """Windows of two samples with 2 and 1 terms: losses 1 (w = 0) and (0.2 - 5)^2; the mean is over three."""
    config = masked([1.0, 1.0, 5.0, -1.0], trainer={"accumulate": 2})
    run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
    losses = [1.0, 4.8**2]
    assert [r["loss"] for r in records(run, "batch")] == pytest.approx(losses, rel=1e-5)
    assert records(run, "epoch")[0]["train_loss"] == pytest.approx((2 * losses[0] + losses[1]) / 3, rel=1e-5)


def test_a_micro_batch_in_which_nothing_counts_changes_nothing(tmp_path):
    with_empty, without = (
        train(masked(y, trainer={"accumulate": len(y)}), tmp_path, extra_callbacks=[InOrder()]).run_dir
        for y in ([3.0, -1.0, 1.0], [3.0, 1.0])
    )
    assert w(with_empty) == w(without) == pytest.approx(0.4, rel=1e-6)
    assert records(with_empty, "batch")[0]["loss"] == records(without, "batch")[0]["loss"] == 5.0


@pytest.mark.parametrize("accumulate", [1, 2])
def test_ignored_targets_count_neither_in_loss_nor_in_accuracy(tmp_path, accumulate):
    """Every sample has the same logits: loss and accuracy are those of the labels that count alone."""

    @register_model("prefers_the_first")
    class PrefersTheFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.tensor([1.0, 0.0, 0.0]))

        def forward(self, x):
            return self.bias.expand(len(x), 3)

    labels = torch.tensor([0, -100, -100, 1, -100, 0])  # one counts in each batch of two

    @register_dataset("half_labelled")
    def build():
        data = TensorData(torch.zeros(6, 4), labels)
        return Splits(data, data, contract=DatasetContract((4,), "classification", 3))

    config = tiny(
        model={"name": "prefers_the_first"},
        dataset={"name": "half_labelled", "batch_size": 2},
        optimizer={"name": "sgd", "lr": 1e-12},
        trainer={"epochs": 1, "accumulate": accumulate},
    )
    run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
    (epoch,) = records(run, "epoch")
    first, other = (torch.log_softmax(torch.tensor([1.0, 0.0, 0.0]), 0)[k].item() for k in (0, 1))
    for phase in ("train", "val"):
        assert epoch[f"{phase}_loss"] == pytest.approx(-(2 * first + other) / 3, rel=1e-6)
        assert epoch[f"{phase}_accuracy"] == pytest.approx(2 / 3, rel=1e-12)


def test_a_step_in_which_no_target_counts_changes_nothing(tmp_path):
    """Its loss is 0 / 0. One micro-batch or several: the gradient is zero, and no mean holds it."""
    weights_of = {}
    for accumulate in (1, 2):
        config = tiny(
            loss={"name": "cross_entropy", "ignore_index": 0},
            dataset={"num_classes": 3, "batch_size": 4},
            optimizer={"name": "sgd", "lr": 0.5},
            trainer={"accumulate": accumulate, "epochs": 1, "log_every": 1},
        )
        seen = NothingCounts()
        run = train(config, tmp_path, extra_callbacks=[seen]).run_dir
        weights_of[accumulate] = weights(run)
        assert_identical(dict(weights_of[accumulate]), seen.before)
        assert all("loss" not in record for record in records(run, "batch"))


class NothingCounts(Callback):
    """Every target is of the ignored class."""

    def on_run_start(self, trainer):
        trainer.train.dataset.targets.zero_()
        self.before = {k: v.clone() for k, v in trainer.parts.models["model"].state_dict().items()}


# --- phases


def test_a_later_phase_of_a_window_sees_the_weights_that_an_earlier_one_changed():
    models = {role: Line(LineOptions()) for role in ("first", "second")}
    updates = {
        role: Update(torch.optim.SGD(model.parameters(), lr=0.5), SingleDevice(CPU))
        for role, model in models.items()
    }

    class TwoPhases(Mode):
        """The second model learns what the first one says."""

        def phases(self, window):
            yield Phase("first", lambda batch: (models["first"](batch["input"]) - 1).square().mean())
            yield Phase("second", self.second)

        def measure(self, batch):
            return {"second": models["second"].w.detach()}

        def second(self, batch):
            with torch.no_grad():
                target = models["first"](batch["input"])
            return (models["second"](batch["input"]) - target).square().mean()

    window = [{"input": torch.ones(3, 1)}, {"input": torch.ones(1, 1)}]
    result = Stepper(TwoPhases(), updates, autocast("fp32", CPU), CPU).run(window)
    assert result.outcomes == ["applied", "applied"]
    assert models["first"].w.item() == pytest.approx(1.0)
    assert models["second"].w.item() == pytest.approx(1.0)


def test_a_phase_that_is_refused_is_counted_and_the_other_one_is_applied():
    models = {"good": torch.nn.Linear(1, 1, bias=False), "bad": torch.nn.Linear(1, 1, bias=False)}
    guard = FiniteGuard("skip", CPU, budget=5)
    updates = {
        role: Update(torch.optim.SGD(model.parameters(), lr=0.5), SingleDevice(CPU), guard=guard)
        for role, model in models.items()
    }
    poisoned = iter([float("nan"), 1.0])

    class TwoPhases(Mode):
        def phases(self, window):
            factor = next(poisoned)
            yield Phase("good", lambda batch: models["good"](batch["input"]).sum())
            yield Phase("bad", lambda batch: models["bad"](batch["input"]).sum() * factor)

        def measure(self, batch):
            return {}

    stepper = Stepper(TwoPhases(), updates, autocast("fp32", CPU), CPU)
    window = [{"input": torch.ones(1, 1)}]
    assert stepper.run(window).outcomes == ["applied", "skipped as not finite"]
    assert stepper.run(window).outcomes == ["applied", "applied"]


def test_a_window_without_an_update_has_no_norm_and_the_rate_that_comes_next():
    """As of a generator that learns in every second window: what it last did is not of this one."""
    model = Line(LineOptions())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    update = Update(optimizer, SingleDevice(CPU), scheduler=schedule, max_grad_norm=1.0)
    learns = iter([True, False])

    class EverySecond(Mode):
        def phases(self, window):
            if next(learns):
                yield Phase("line", lambda batch: model(batch["input"]).sum())

        def measure(self, batch):
            return {}

    stepper = Stepper(EverySecond(), {"line": update}, autocast("fp32", CPU), CPU)
    stepper.run([{"input": torch.ones(3, 1)}])
    assert (update.grad_norm.item(), update.applied_lr) == (3.0, 0.5)
    stepper.run([{"input": torch.ones(3, 1)}])
    assert (update.grad_norm, update.applied_lr) == (None, 0.25)
