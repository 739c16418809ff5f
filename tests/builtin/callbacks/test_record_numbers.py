"""lr_monitor, throughput and grad_norm: numbers in the records of a run."""

import math

import pytest
import torch
from torch import nn

from support.by_hand import line
from support.host_reads import Reads
from support.runs import InOrder, interrupted, manifest, records, run_dirs, tiny, train, without_times
from trainlattice import Callback
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [1.0, 2.0, 3.0, 6.0], "batch_size": 1}


def with_callbacks(config, *callbacks):
    return {**config, "callbacks": list(callbacks)}


# --- lr_monitor


def test_the_rate_that_a_step_applied_and_the_one_that_the_next_epoch_begins_with(tmp_path):
    config = line(
        dataset=POINTS,
        scheduler={"name": "step_decay", "step_size": 2, "gamma": 0.5},
        trainer={"epochs": 2},
    )
    run = train(with_callbacks(config, {"name": "lr_monitor"}), tmp_path).run_dir
    batches = records(run, "batch")
    applied = [record["lr/optimizer"] for record in batches]
    assert applied == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125])
    assert applied == [record["lr"] for record in batches]
    assert [record["lr/optimizer"] for record in records(run, "epoch")] == pytest.approx([0.025, 0.00625])


def test_each_group_has_its_rate(tmp_path):
    config = tiny(optimizer={"groups": [{"params": "bias", "lr": 0.5}, {"params": "rest"}]})
    run = train(with_callbacks(config, {"name": "lr_monitor"}), tmp_path).run_dir
    for record in (records(run, "batch")[0], records(run, "epoch")[0]):
        assert {name: value for name, value in record.items() if name.startswith("lr/")} == {
            "lr/optimizer/0": 0.5,
            "lr/optimizer/1": 0.01,
        }


# --- throughput


class Clock:
    """Two seconds more at each look that throughput takes at the seconds of the epoch."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        from trainlattice.training.epoch import EpochProgress

        monkeypatch.setattr(EpochProgress, "seconds", property(lambda progress: self.now))


class Tick(Callback):
    """A step takes as many seconds as it is told."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, list(seconds)

    def on_batch_start(self, trainer, phase, container):
        self.clock.now += self.seconds.pop(0)


def test_rates_are_those_of_the_last_steps(tmp_path, monkeypatch):
    """Two batches a step; batches of two samples, the last of one."""
    clock = Clock(monkeypatch)
    config = line(dataset={"x": [1.0] * 11, "y": [1.0] * 11, "batch_size": 2}, trainer={"accumulate": 2})
    run = train(
        with_callbacks(config, {"name": "throughput", "window": 2}),
        tmp_path,
        extra_callbacks=[Tick(clock, [1.0, 1.0, 3.0, 1.0, 2.0, 2.0])],
    ).run_dir
    found = [
        [record[f"throughput/{what}_per_sec"] for what in ("steps", "batches", "samples")]
        for record in records(run, "batch")
    ]
    assert found[0] == pytest.approx([1 / 2, 2 / 2, 4 / 2])
    assert found[1] == pytest.approx([2 / 6, 4 / 6, 8 / 6])
    assert found[2] == pytest.approx([2 / 8, 4 / 8, 7 / 8])


def test_the_rates_of_two_runs_are_no_difference(tmp_path):
    from trainlattice.runs.compare import no_two_runs_share

    run = train(with_callbacks(line(dataset=POINTS), {"name": "throughput"}), tmp_path).run_dir
    added = {name for record in records(run) for name in record if name.startswith("throughput/")}
    assert len(added) == 3
    assert all(no_two_runs_share(name) for name in added)
    assert not no_two_runs_share("loss")


# --- grad_norm


class Saves(Callback):
    """Gradients of each step as torch left them, before they are clipped."""

    sees_every_gradient = True

    def __init__(self):
        self.gradients = []

    def on_gradients(self, trainer, role):
        named = trainer.parts.models["model"].named_parameters()
        self.gradients.append({name: parameter.grad.clone() for name, parameter in named})


@pytest.mark.parametrize(
    ("option", "p"), [({}, 2.0), ({"norm_type": 1.0}, 1.0), ({"norm_type": "inf"}, math.inf)]
)
def test_norms_are_those_that_torch_computes_of_gradients_that_are_not_clipped(tmp_path, option, p):
    saves = Saves()
    grad_norm = {"name": "grad_norm", "patterns": ["bias", "layers.1.*"], "module_depth": 2, **option}
    config = tiny(trainer={"max_grad_norm": 1e-3, "log_every": 2})
    run = train(with_callbacks(config, grad_norm), tmp_path, extra_callbacks=[saves]).run_dir
    batches = records(run, "batch")
    assert len(batches) == 3
    for record in batches:
        gradients = saves.gradients[record["step"] - 1]

        def norm(*wanted, gradients=gradients):
            chosen = [g for name, g in gradients.items() if not wanted or name in wanted]
            parameters = [nn.Parameter(torch.zeros_like(g)) for g in chosen]
            for parameter, gradient in zip(parameters, chosen, strict=True):
                parameter.grad = gradient.clone()
            return nn.utils.clip_grad_norm_(parameters, 1.0, norm_type=p).item()

        first, last = ("layers.1.weight", "layers.1.bias"), ("layers.4.weight", "layers.4.bias")
        expected = {
            "grad_norm/optimizer": norm(),
            "grad_norm/optimizer/bias": norm(first[1], last[1]),
            "grad_norm/optimizer/layers.1.*": norm(*first),
            "grad_norm/optimizer/layers.1": norm(*first),
            "grad_norm/optimizer/layers.4": norm(*last),
        }
        found = {name: value for name, value in record.items() if name.startswith("grad_norm/")}
        assert found == pytest.approx(expected, rel=1e-5)
        if p == 2.0:  # what core records while it clips
            assert record["grad_norm"] == pytest.approx(expected["grad_norm/optimizer"], rel=1e-5)


def test_the_norm_of_a_window_is_that_of_its_mean(tmp_path):
    """At w = 0 the gradient is -2 mean(y)."""
    config = with_callbacks(line(dataset=POINTS, trainer={"accumulate": 4}), {"name": "grad_norm"})
    (record,) = records(train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir, "batch")
    assert record["grad_norm/optimizer"] == pytest.approx(6.0, rel=1e-6)


def test_a_pattern_that_no_parameter_has_is_refused_before_a_run_exists(tmp_path):
    config = with_callbacks(
        tiny(), {"name": "progress"}, {"name": "grad_norm", "patterns": ["bias", "heads.*"]}
    )
    with pytest.raises(
        ConfigError, match=r"(?s)callbacks\.1\.patterns\.1.*no parameter is named 'heads\.\*'|no parameter is"
    ):
        train(config, tmp_path)
    assert not run_dirs(tmp_path)


# --- what they cost


def test_none_of_them_waits_for_the_device_between_two_logs(tmp_path, monkeypatch):
    reads = Reads(monkeypatch)
    config = tiny(trainer={"log_every": 4}, dataset={"batch_size": 1})
    callbacks = [{"name": name} for name in ("lr_monitor", "throughput", "ema", "nan_report")]
    callbacks += [
        {"name": "grad_norm", "module_depth": 1},
        {"name": "freeze", "params": ["bias"], "until_step": 5},
    ]
    result = train(with_callbacks(config, *callbacks), tmp_path, extra_callbacks=[reads])
    epoch = result.global_step // 2
    logged = set(range(4, result.global_step + 1, 4))
    assert logged & set(reads.steps)
    assert set(reads.steps) <= logged | {epoch, result.global_step}


def test_records_do_not_depend_on_where_the_run_was_interrupted(tmp_path):
    callbacks = [{"name": "lr_monitor"}, {"name": "grad_norm"}]
    config = with_callbacks(tiny(trainer={"epochs": 3}), *callbacks)
    straight = train(config, tmp_path / "straight").run_dir
    first = interrupted(config, tmp_path, epochs=1)
    second = train(config, tmp_path, resume=first).run_dir
    found = [record for run in (first, second) for record in records(run, "batch")]
    assert without_times(found) == without_times(records(straight, "batch"))
    assert manifest(second)["status"] == "finished"
