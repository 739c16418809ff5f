"""nan_report: which module or gradient, and which batch, was the first that was not finite."""

import json

import pytest
import torch
from torch import nn

from support.runs import InOrder, assert_identical, records, run_dirs, tiny, train, weights
from trainlattice import Callback, register_dataset, register_model
from trainlattice.contracts.records import DatasetContract
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import NonFiniteError

pytestmark = pytest.mark.torch
AT: list[int] = []
"""Calls of the model, while it trains, in which something goes wrong."""


class Breaks(nn.Module):
    """Gives infinity, or a root whose gradient is infinite at zero, where AT says."""

    def __init__(self, what):
        super().__init__()
        self.what, self.calls = what, 0

    def forward(self, x):
        self.calls += self.training
        if not self.training or self.calls not in AT:
            return x
        return x + torch.inf if self.what == "output" else x + (x - x).abs().sqrt()


class Net(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.first, self.breaks, self.last = nn.Linear(4, 8), Breaks(what), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.breaks(self.first(x)))


@register_model("breaks_an_output")
def breaks_an_output(options):
    return Net("output")


@register_model("breaks_a_gradient")
def breaks_a_gradient(options):
    return Net("gradient")


class Hooks(Callback):
    """Whether hooks are left when the run is over."""

    def finalize(self, trainer, error):
        self.left = [
            name
            for name, module in trainer.parts.models["model"].named_modules()
            if module._forward_hooks or module._forward_pre_hooks
        ] + [name for name, p in trainer.parts.models["model"].named_parameters() if p._backward_hooks]


def reported(config, directory, *callbacks, error=NonFiniteError):
    hooks = Hooks()
    config = {**config, "callbacks": [{"name": "nan_report"}]}
    with pytest.raises(error):
        train(config, directory, extra_callbacks=[InOrder(), *callbacks, hooks])
    (run,) = run_dirs(directory)
    assert hooks.left == []
    return json.loads((run / "nan_report.json").read_text()), run


@pytest.mark.parametrize("log_every", [1, 100])
def test_the_module_and_the_batch_whose_output_was_not_finite(tmp_path, log_every):
    """The fifth batch is the second of the second epoch; it is noticed at a log or when the epoch ends."""
    AT[:] = [5]
    config = tiny(model={"name": "breaks_an_output"}, trainer={"epochs": 3, "log_every": log_every})
    report, run = reported(config, tmp_path)
    assert report["first"] == {"what": "output", "role": "model", "module": "breaks", "type": "Breaks"}
    assert (report["epoch"], report["batches"], report["step"]) == (2, [2, 2], 5)
    assert [place.get("module") for place in report["then"][:3]] == [
        "last",
        "",
        "",
    ]  # the layer, the model, the loss
    assert report["then"][2]["role"] == "loss"
    assert report["error"].startswith("the loss or a gradient of step 5 is not finite")
    (warning,) = [r["message"] for r in records(run, "event") if r["event"] == "warning"]
    assert warning == (
        "the output of breaks (Breaks) of the model was the first that was not finite: epoch 2, step 5, batch 2"
    )


def test_a_gradient_that_is_not_finite_while_every_output_is(tmp_path):
    AT[:] = [2]
    report, _ = reported(tiny(model={"name": "breaks_a_gradient"}), tmp_path)
    assert report["first"]["what"] == "gradient"
    assert report["first"]["parameter"].startswith("first.")
    assert (report["epoch"], report["batches"], report["step"]) == (1, [2, 2], 2)
    assert {place["what"] for place in report["then"]} == {"gradient"}


def test_of_a_compiled_model_gradients_are_watched(tmp_path):
    AT[:] = [2]
    trainer = {"compile": {"backend": "eager"}}
    report, _ = reported(tiny(model={"name": "breaks_an_output"}, trainer=trainer), tmp_path)
    assert {report["first"]["what"]} | {place["what"] for place in report["then"]} == {"output", "gradient"}
    assert (report["first"]["role"], report["batches"]) == ("loss", [2, 2])


def test_the_batches_of_a_window(tmp_path):
    """A window of two batches of eight, and one of a batch of four."""
    AT[:] = [3]
    report, _ = reported(tiny(model={"name": "breaks_an_output"}, trainer={"accumulate": 2}), tmp_path)
    assert (report["epoch"], report["batches"], report["step"]) == (1, [3, 3], 2)


@pytest.mark.parametrize(
    ("broken", "batches", "where"),
    [
        (5, [5, 5], "batch 5"),
        (4, [3, 4], "batches 3 to 4"),
        (10, [5, 5], "batch 5"),
        (6, [1, 2], "batches 1 to 2"),
    ],
)
def test_the_last_window_of_an_epoch_may_have_fewer_batches(tmp_path, broken, batches, where):
    """Twenty samples: five batches in three windows."""
    AT[:] = [broken]
    config = tiny(model={"name": "breaks_an_output"}, trainer={"accumulate": 2}, dataset={"batch_size": 4})
    report, run = reported(config, tmp_path)
    assert report["batches"] == batches
    (warning,) = [r["message"] for r in records(run, "event") if r["event"] == "warning"]
    assert warning.endswith(f", {where}")


@pytest.mark.parametrize("first", ["freeze", "nan_report"])
def test_gradients_of_what_was_frozen_are_watched_once_it_is_trained(tmp_path, first):
    AT[:] = [2, 4]
    freeze = {"name": "freeze", "params": ["first.*"], "until_step": 2}
    callbacks = [freeze, {"name": "nan_report"}]
    config = tiny(model={"name": "breaks_a_gradient"})
    config["callbacks"] = callbacks if first == "freeze" else callbacks[::-1]
    hooks = Hooks()
    with pytest.raises(NonFiniteError):
        train(config, tmp_path, extra_callbacks=[InOrder(), hooks])
    (run,) = run_dirs(tmp_path)
    report = json.loads((run / "nan_report.json").read_text())
    assert report["first"]["parameter"].startswith("first.")
    assert (report["epoch"], report["step"]) == (2, 4)
    assert hooks.left == []


def test_what_is_frozen_for_good_stays_so(tmp_path):
    AT[:] = []

    class Asks(Callback):
        def on_step_end(self, trainer):
            self.trained = {n for n, p in trainer.parts.models["model"].named_parameters() if p.requires_grad}

    asks = Asks()
    callbacks = [{"name": "freeze", "params": ["first.*"]}, {"name": "nan_report"}]
    train(
        {**tiny(model={"name": "breaks_an_output"}), "callbacks": callbacks}, tmp_path, extra_callbacks=[asks]
    )
    assert asks.trained == {"last.weight", "last.bias"}


@register_dataset("an_infinite_sample")
def an_infinite_sample():
    """The eleventh of twenty."""
    inputs = torch.ones(20, 4)
    inputs[10, 2] = torch.inf
    data = TensorData(inputs, torch.zeros(20, dtype=torch.int64))
    return Splits(data, None, contract=DatasetContract((4,), "classification", 3))


def test_an_input_that_is_not_finite(tmp_path):
    AT[:] = []
    dataset = {"name": "an_infinite_sample", "batch_size": 8}
    report, _ = reported(tiny(model={"name": "breaks_an_output"}, dataset=dataset), tmp_path)
    assert report["first"] == {"what": "input", "role": "model", "module": "", "type": "Net"}
    assert report["batches"] == [2, 2]


def test_of_steps_that_were_skipped_the_first_is_reported_when_the_run_ends(tmp_path):
    AT[:] = [2, 4]
    config = tiny(model={"name": "breaks_an_output"}, trainer={"nonfinite": "skip"})
    run = train(
        {**config, "callbacks": [{"name": "nan_report"}]}, tmp_path, extra_callbacks=[InOrder()]
    ).run_dir
    report = json.loads((run / "nan_report.json").read_text())
    assert report["error"] is None
    assert (report["epoch"], report["batches"], report["step"]) == (1, [2, 2], 2)


@register_dataset("first_batch_counts_nothing")
def first_batch_counts_nothing():
    targets = torch.zeros(20, dtype=torch.int64)
    targets[:8] = -100
    data = TensorData(torch.ones(20, 4), targets)
    return Splits(data, None, contract=DatasetContract((4,), "classification", 3))


def test_after_a_skipped_step_steps_and_batches_are_counted_apart(tmp_path):
    AT[:] = [3]
    dataset = {"name": "first_batch_counts_nothing", "batch_size": 8}
    report, _ = reported(tiny(model={"name": "breaks_an_output"}, dataset=dataset), tmp_path)
    assert (report["epoch"], report["batches"], report["step"]) == (1, [3, 3], 2)


def test_nothing_is_written_of_a_run_that_was_finite_and_training_is_the_same(tmp_path):
    AT[:] = []
    config = tiny(model={"name": "breaks_an_output"}, trainer={"validate_every_steps": 2})
    watched = train({**config, "callbacks": [{"name": "nan_report"}]}, tmp_path).run_dir
    plain = train({**config, "callbacks": []}, tmp_path / "plain").run_dir
    assert not (watched / "nan_report.json").exists()
    assert_identical(weights(watched), weights(plain))


def test_another_failure_leaves_no_report(tmp_path):
    AT[:] = []

    class Fails(Callback):
        def on_step_end(self, trainer):
            raise ZeroDivisionError

    hooks = Hooks()
    config = {**tiny(model={"name": "breaks_an_output"}), "callbacks": [{"name": "nan_report"}]}
    with pytest.raises(ZeroDivisionError):
        train(config, tmp_path, extra_callbacks=[Fails(), hooks])
    (run,) = run_dirs(tmp_path)
    assert not (run / "nan_report.json").exists()
    assert hooks.left == []


def test_what_a_validation_does_is_not_looked_at(tmp_path):
    class Infinite(Callback):
        """The model gives infinity in validations only."""

        def on_phase_start(self, trainer, phase):
            bias = trainer.parts.models["model"].last.bias
            with torch.no_grad():
                if phase == "val":
                    self.held = bias.clone()
                    bias.fill_(torch.inf)

        def on_phase_end(self, trainer, phase):
            if phase == "val":
                with torch.no_grad():
                    trainer.parts.models["model"].last.bias.copy_(self.held)

    AT[:] = [5]
    config = tiny(model={"name": "breaks_an_output"}, trainer={"epochs": 2, "validate_every_steps": 2})
    report, _ = reported(config, tmp_path, Infinite())
    assert (report["epoch"], report["step"]) == (2, 5)


def test_how_many_are_listed(tmp_path):
    AT[:] = [1]
    config = tiny(model={"name": "breaks_an_output"})
    with pytest.raises(NonFiniteError):
        train({**config, "callbacks": [{"name": "nan_report", "most": 1}]}, tmp_path)
    (run,) = run_dirs(tmp_path)
    report = json.loads((run / "nan_report.json").read_text())
    assert len(report["then"]) == 1
    assert report["more"] >= 2
