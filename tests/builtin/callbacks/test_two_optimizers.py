"""A mode with two models and two optimizers: numbers and averages by role."""

import json

import pytest

from support.by_hand import line
from support.runs import InOrder, checkpoint, records, run_dirs, train
from trainlattice import Options, register
from trainlattice.contracts.modes import ModeContract
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.training.mode import Mode, Phase

pytestmark = pytest.mark.torch


class TwoLinesOptions(Options):
    def contract(self):
        return ModeContract(
            required=("model", "dataset", "optimizer"),
            optional=("scheduler",),
            metrics=("loss",),
            roles={"model": ("first", "second"), "optimizer": ("first", "second")},
        )


@register("mode", "two_lines", options=TwoLinesOptions)
class TwoLines(Mode):
    """The first line learns the target, then the second one its double."""

    def __init__(self, options, parts):
        self.models = parts.models

    def phases(self, window):
        for role, factor in (("first", 1.0), ("second", 2.0)):

            def loss(container, role=role, factor=factor):
                pred = self.models[role](container["input"])
                container["loss"] = (pred - factor * container["target"]).square().mean()
                return container["loss"]

            yield Phase(role, loss)

    def evaluate(self, container):
        pred = self.models["first"](container["input"])
        container["loss"] = (pred - container["target"]).square().mean()

    def measure(self, container):
        return {"loss": container["loss"].detach()}


def config(*callbacks):
    points = {"x": [1.0, 1.0], "y": [1.0, 1.0], "val_x": [1.0], "val_y": [1.0]}
    made = line(dataset=points, trainer={"epochs": 1})
    made.pop("loss")
    made["mode"] = {"name": "two_lines"}
    made["model"] = {"first": {"name": "line"}, "second": {"name": "line"}}
    made["optimizer"] = {"first": {"name": "sgd", "lr": 0.1}, "second": {"name": "sgd", "lr": 0.25}}
    return {**made, "callbacks": list(callbacks)}


def test_rates_and_norms_are_told_apart_by_role(tmp_path):
    """Gradients 2 (w - 1) and 2 (w - 2): w is 0 and 0.2, and 0 and 1."""
    callbacks = [{"name": "lr_monitor"}, {"name": "grad_norm", "module_depth": 1, "patterns": ["second.*"]}]
    run = train(config(*callbacks), tmp_path, extra_callbacks=[InOrder()]).run_dir
    found = [
        {name: value for name, value in record.items() if name.startswith(("lr/", "grad_norm/"))}
        for record in records(run, "batch")
    ]
    for record, first, second in zip(found, (2.0, 1.6), (4.0, 2.0), strict=True):
        assert record == pytest.approx(
            {
                "lr/first": 0.1,
                "lr/second": 0.25,
                "grad_norm/first": first,
                "grad_norm/first/first": first,
                "grad_norm/second": second,
                "grad_norm/second/second": second,
                "grad_norm/second/second.*": second,
            }
        )


def test_every_model_is_averaged_and_written(tmp_path):
    callbacks = [{"name": "ema", "decay": 0.5}, {"name": "param_histogram"}, {"name": "trial_summary"}]
    run = train(config(*callbacks), tmp_path).run_dir
    held = checkpoint(run)["states"]["callbacks"]["callbacks:ema"]["weights"]
    assert held["first"]["w"].item() == pytest.approx((0.2 + 0.36) / 2)
    assert held["second"]["w"].item() == pytest.approx((1.0 + 1.5) / 2)
    lines = [json.loads(text) for text in (run / "histograms.jsonl").read_text().splitlines()]
    assert [(line["name"], line["mean"]) for line in lines] == [
        ("first.w", pytest.approx(0.36)),
        ("second.w", pytest.approx(1.5)),
    ]
    assert json.loads((run / "trial_summary.json").read_text())["parameters"] == 2


def test_an_optimizer_whose_parameters_would_all_be_frozen_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nothing would be left for the second to train"):
        train(config({"name": "freeze", "params": ["second.*"]}), tmp_path)
    assert not run_dirs(tmp_path)
