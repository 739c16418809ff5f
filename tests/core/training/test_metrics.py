"""Metrics: which keys they read, in which phases, what they leave in records and checkpoints."""

import signal
import warnings

import pytest
import torch

from support.by_hand import line
from support.runs import assert_same_end, checkpoint, manifest, records, run_dirs, tiny, train
from trainlattice import Callback, Options, register_metric
from trainlattice.cli.evaluate import evaluate
from trainlattice.config.resolve import resolve_mapping
from trainlattice.diagnostics.errors import CheckpointError, ConfigError, RunTerminated, TrainLatticeError
from trainlattice.runs.evaluation import evaluate_run
from trainlattice.training.metrics import NamedMetric, PhaseMetrics

pytestmark = pytest.mark.torch
BUILT = []


class WorstOptions(Options):
    scale: float = 1.0
    as_pair: bool = False
    as_list: bool = False


@register_metric("worst", options=WorstOptions)
class Worst:
    """The largest error, which no mean over batches could give."""

    higher_is_better = False

    def __init__(self, options):
        self.options = options
        self.reset()
        BUILT.append(self)

    def reset(self):
        self.worst, self.batches = torch.zeros(()), 0

    def update(self, preds, target):
        if preds.shape != target.shape:
            raise ValueError(f"preds {list(preds.shape)} and target {list(target.shape)} differ")
        self.worst = torch.maximum(self.worst, (preds - target).abs().max() * self.options.scale)
        self.batches += 1

    def compute(self):
        if self.options.as_pair:
            return {"value": self.worst, "batches": self.batches}
        return self.worst.expand(2) if self.options.as_list else self.worst

    def state_dict(self):
        return {"worst": self.worst, "batches": self.batches}

    def load_state_dict(self, state):
        self.worst, self.batches = state["worst"], state["batches"]


POINTS = {
    "x": [1.0, 2.0, 3.0],
    "y": [1.0, 5.0, 3.0],
    "val_x": [1.0, 2.0, 4.0],
    "val_y": [0.0, 1.0, 9.0],
    "batch_size": 2,
}
STILL = {"name": "sgd", "lr": 1e-12}


def config(*metrics, **sections):
    made = line(dataset=POINTS, optimizer=STILL, model={"name": "line", "w0": 2.0}, **sections)
    return {**made, "metrics": list(metrics)}


def test_a_value_over_the_whole_validation_stands_in_the_records(tmp_path):
    """Predictions 2, 4, 8 for 0, 1, 9 in batches of two and one: the largest error is 3."""
    run = train(config({"name": "worst"}), tmp_path).run_dir
    assert records(run, "validation")[0]["val_worst"] == records(run, "epoch")[0]["val_worst"] == 3.0
    assert "train_worst" not in records(run, "epoch")[0]


def test_phases_have_objects_of_their_own_that_begin_anew(tmp_path):
    BUILT.clear()
    trainer = {"epochs": 3, "validate_every_steps": 1}
    run = train(config({"name": "worst", "phases": ["train", "val"]}, trainer=trainer), tmp_path).run_dir
    assert len(BUILT) == 2
    assert [r["train_worst"] for r in records(run, "epoch")] == [3.0] * 3  # 6 for 3
    assert {r["val_worst"] for r in records(run, "validation")} == {3.0}
    assert BUILT[0].batches == 2  # of the last epoch only


def test_as_and_options_and_inputs(tmp_path):
    twice = {"name": "worst", "as": "worst_twice", "scale": 2.0}
    swapped = {"name": "worst", "as": "own", "inputs": {"preds": "target", "target": "target"}}
    (found,) = records(train(config({"name": "worst"}, twice, swapped), tmp_path).run_dir, "validation")
    assert (found["val_worst"], found["val_worst_twice"], found["val_own"]) == (3.0, 6.0, 0.0)


def test_a_metric_of_several_values_and_one_that_is_no_scalar(tmp_path):
    pair = {"name": "worst", "as_pair": True}
    several = {"name": "worst", "as": "list", "as_list": True}
    (found,) = records(train(config(pair, several), tmp_path).run_dir, "validation")
    assert (found["val_worst_value"], found["val_worst_batches"], found["val_list"]) == (3.0, 2, [3.0, 3.0])


@pytest.mark.parametrize(("mode", "expected"), [("auto", "min"), ("max", "max")])
def test_a_monitor_has_the_direction_of_its_metric(tmp_path, mode, expected):
    trainer = {"monitor": "val_worst", "monitor_mode": mode}
    result = train(config({"name": "worst"}, trainer=trainer), tmp_path)
    assert (result.best_metric, manifest(result.run_dir)["monitor_direction"]) == (3.0, expected)


def test_a_metric_that_wants_more_is_better_when_larger(tmp_path, monkeypatch):
    monkeypatch.setattr(Worst, "higher_is_better", True)
    result = train(config({"name": "worst"}, trainer={"monitor": "val_worst"}), tmp_path)
    assert manifest(result.run_dir)["monitor_direction"] == "max"


def test_training_goes_on_as_if_nothing_was_measured(tmp_path):
    metrics = {**tiny(), "metrics": [{"name": "counting", "phases": ["train", "val"]}]}
    with_metrics = train(metrics, tmp_path, extra_callbacks=[Callback()]).run_dir
    without = train(tiny(), tmp_path / "without", extra_callbacks=[Callback()]).run_dir
    left, right = checkpoint(with_metrics), checkpoint(without)
    for name, value in right["states"]["model/model"].items():
        assert torch.equal(left["states"]["model/model"][name], value)
    assert torch.equal(left["rng"]["torch"], right["rng"]["torch"])


@register_metric("counting")
class Counting:
    """Batches and samples, all of them, and a sum that shows in which order."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.total = torch.zeros((), dtype=torch.float64)

    def update(self, preds, target):
        self.total = self.total * 1.5 + preds.double().sum()

    def compute(self):
        return self.total

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


@pytest.mark.parametrize("step", [1, 2, 4])
def test_a_run_is_resumed_in_the_middle_of_what_is_measured(tmp_path, step):
    class Stops(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == step:
                signal.raise_signal(signal.SIGTERM)

    settings = {**tiny(), "metrics": [{"name": "counting", "phases": ["train", "val"]}]}
    whole = train(settings, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(RunTerminated):
        train(settings, tmp_path, extra_callbacks=[Stops()])
    (first,) = run_dirs(tmp_path)
    end = train(settings, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir
    assert_same_end(whole, end)
    names = ("train_counting", "val_counting")
    expected = [[r[name] for name in names] for r in records(whole, "epoch")]
    found = [[r[name] for name in names] for run in (first, end) for r in records(run, "epoch")]
    assert found == expected


@register_metric("lists")
class Lists(Counting):
    """A list with a number that is not finite."""

    def compute(self):
        return torch.tensor([1.0, torch.nan])


def test_a_list_is_evaluated_and_printed_and_is_strict_json(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train({**tiny(), "metrics": [{"name": "lists"}]}, tmp_path).run_dir
    found = evaluate_run(run)
    assert found.as_json()["metrics"]["val_lists"] == [1.0, None]
    with pytest.raises(SystemExit) as ended:
        evaluate.main([str(run)])
    assert ended.value.code == 0
    assert "val_lists        [1.0, nan]" in capsys.readouterr().out


@register_metric("warns")
class Warns(Counting):
    def compute(self):
        warnings.warn("too few to tell", stacklevel=1)
        return self.total


def test_what_a_metric_warns_of_two_samples_is_not_shown(tmp_path):
    """Warnings are errors here: of the trial it is none, of a validation it is one."""
    settings = {**tiny(), "metrics": [{"name": "warns"}]}
    with pytest.raises(UserWarning, match="too few to tell"):
        train(settings, tmp_path)
    assert len(run_dirs(tmp_path)) == 1  # so it was the validation


def test_a_state_that_a_metric_cannot_take_is_refused_by_its_name():
    phase = PhaseMetrics([NamedMetric("counted", Counting(), {})])
    with pytest.raises(
        CheckpointError, match="the state of the metric 'counted' does not fit this run: total"
    ):
        phase.load_state_dict({"counted": {"worst": 1}})


# --- mistakes


def refused(tmp_path, settings):
    with pytest.raises(ConfigError) as raised:
        train(settings, tmp_path)
    assert run_dirs(tmp_path) == []
    return str(raised.value)


def test_a_key_that_does_not_exist_is_refused_before_the_run(tmp_path):
    text = refused(tmp_path, config({"name": "worst", "inputs": {"preds": "pred/x", "target": "target"}}))
    assert "metrics.0" in text
    assert "the metric 'worst' needs the key 'pred/x'" in text
    assert "'pred'" in text


def test_a_shape_that_a_metric_cannot_take_is_refused_with_what_it_is_given(tmp_path):
    text = refused(tmp_path, {**tiny(), "metrics": [{"name": "worst"}]})
    assert "metric 'worst' cannot take what it is given" in text
    assert "preds: pred [2, 3] float32, target: target [2] int64" in text


def test_two_metrics_of_one_name_need_another(tmp_path):
    text = refused(tmp_path, config({"name": "worst"}, {"name": "worst"}))
    assert "the name 'worst' is taken: give this metric another one with the key 'as'" in text
    assert "metrics.1.as" in text


def test_a_name_of_core_is_taken_too(tmp_path):
    assert "the name 'loss' is taken" in refused(tmp_path, config({"name": "worst", "as": "loss"}))


def test_a_phase_that_does_not_exist_and_an_unknown_option(tmp_path):
    text = refused(tmp_path, config({"name": "worst", "phases": ["valid"], "scala": 1.0}))
    assert "metrics.0.phases" in text
    assert "did you mean 'scale'?" in text


def test_what_is_no_metric_is_refused(tmp_path):
    @register_metric("no_metric")
    class NoMetric:
        def update(self, preds, target): ...

    with pytest.raises(TrainLatticeError, match="expected a metric: update, compute, reset"):
        train(config({"name": "no_metric"}), tmp_path)


class PlainSum:
    """Does not say which way it is better."""

    def __init__(self, options):
        self.as_list, self.total = options.as_list, 0.0

    def update(self, preds, target):
        self.total += float(preds.sum())

    def compute(self):
        return [self.total, 0.0] if self.as_list else self.total

    def reset(self):
        self.total = 0.0

    def state_dict(self):
        return {"total": self.total}

    def load_state_dict(self, state):
        self.total = state["total"]


class PlainSumOptions(Options):
    as_list: bool = False


register_metric("plain_sum", options=PlainSumOptions)(PlainSum)


def monitoring(**options):
    config = tiny(trainer={"monitor": "val_plain_sum"})
    return {**config, "metrics": [{"name": "plain_sum", **options}]}


def test_a_monitor_of_which_nobody_knows_the_better_direction_is_refused(tmp_path):
    with pytest.raises(ConfigError) as raised:
        train(monitoring(), tmp_path)
    (found,) = raised.value.diagnostics
    assert found.path == "trainer.monitor"
    assert "set trainer.monitor_mode to max or min" in found.message
    config = monitoring()
    config["trainer"]["monitor_mode"] = "max"
    assert train(config, tmp_path).best_metric is not None


def test_a_monitor_that_is_no_single_number_is_refused(tmp_path):
    with pytest.raises(ConfigError) as raised:
        train(monitoring(as_list=True), tmp_path)
    (found,) = raised.value.diagnostics
    assert (found.path, found.message) == (
        "trainer.monitor",
        "'val_plain_sum' is no single number: the best of its values cannot be told",
    )


def test_a_metric_that_reads_what_another_phase_alone_writes_is_refused_at_its_key(tmp_path):
    config = tiny()
    config["postprocess"] = [{"name": "argmax", "phases": ["val"]}]
    inputs = {"preds": "post_processed/argmax", "target": "target"}
    config["metrics"] = [{"name": "plain_sum", "phases": ["train", "val", "test"], "inputs": inputs}]
    with pytest.raises(ConfigError) as raised:
        resolve_mapping(config)
    (found,) = raised.value.diagnostics
    assert found.path == "metrics.0.inputs.preds"
    assert "is not written in phase train and test" in found.message
    assert "only in val" in found.message


class BetterLarger(PlainSum):
    higher_is_better = True


class BetterSmaller(PlainSum):
    higher_is_better = False


register_metric("better_larger", options=PlainSumOptions)(BetterLarger)
register_metric("better_smaller", options=PlainSumOptions)(BetterSmaller)


def test_of_names_that_begin_alike_the_monitored_one_gives_the_direction(tmp_path):
    config = tiny(trainer={"monitor": "val_err_good"})
    config["metrics"] = [
        {"name": "better_smaller", "as": "err"},
        {"name": "better_larger", "as": "err_good"},
    ]
    assert manifest(train(config, tmp_path).run_dir)["monitor_direction"] == "max"
