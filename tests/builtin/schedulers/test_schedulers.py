"""Learning rates against values computed by hand."""

import math

import pytest
import torch

from support.by_hand import line
from support.runs import records, tiny, train, weights
from trainlattice.diagnostics.errors import ConfigError
from trainlattice_plugin_schedulers.options import StepDecayOptions, WarmupOptions
from trainlattice_plugin_schedulers.schedulers import StepDecay, WarmupCosine, WarmupLinear

pytestmark = pytest.mark.torch


def rates(build, steps, lr=0.1):
    """The rates that the first steps apply."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler = build(optimizer)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def warmup(kind, total, **options):
    return lambda optimizer: kind(WarmupOptions(**options), optimizer, total)


def test_linear_warmup_and_decay():
    """warmup 4, total 10: six steps from 0.1 down to 0, then 0."""
    found = rates(warmup(WarmupLinear, 10, warmup_steps=4), 12)
    decay = [0.1 * (1 - k / 6) for k in range(6)]
    assert found == pytest.approx([0.025, 0.05, 0.075, 0.1, *decay, 0.0, 0.0])


def test_cosine_decay_to_a_floor():
    """warmup 2, total 6, floor 0.02: 0.02 + 0.08 * (1 + cos(pi k / 4)) / 2."""
    half = math.sqrt(0.5)
    shares = [1, (1 + half) / 2, 0.5, (1 - half) / 2]
    found = rates(warmup(WarmupCosine, 6, warmup_steps=2, min_lr=0.02), 8)
    assert found == pytest.approx([0.05, 0.1, *(0.02 + 0.08 * share for share in shares), 0.02, 0.02])


def test_cosine_without_warmup_over_ten_steps():
    found = rates(warmup(WarmupCosine, 10), 10, lr=1.0)
    assert found[5:] == pytest.approx([0.5, 0.345492, 0.206107, 0.095492, 0.024472], abs=1e-6)


@pytest.mark.parametrize("kind", [WarmupCosine, WarmupLinear])
@pytest.mark.parametrize("steps", [0, 1])
def test_no_warmup_or_one_of_one_step_begins_at_the_full_rate(kind, steps):
    assert rates(warmup(kind, 10, warmup_steps=steps), 1) == [0.1]


@pytest.mark.parametrize("kind", [WarmupCosine, WarmupLinear])
@pytest.mark.parametrize(("steps", "total"), [(0, 1), (0, 10), (3, 4), (9, 10)])
def test_rates_rise_to_the_full_rate_and_fall_to_the_floor_and_stay_there(kind, steps, total):
    found = rates(warmup(kind, total, warmup_steps=steps, min_lr=0.01), total + 3)
    assert all(0 < rate <= 0.1 + 1e-15 for rate in found)
    assert found[:steps] == sorted(found[:steps])
    assert found[steps] == 0.1
    assert found[steps:] == sorted(found[steps:], reverse=True)
    assert found[total:] == [0.01] * 3


def test_total_steps_that_are_given_replace_the_length_of_the_run():
    assert rates(warmup(WarmupLinear, 1000, total_steps=4), 5) == pytest.approx(
        [0.1, 0.075, 0.05, 0.025, 0.0]
    )


def test_step_decay_is_a_staircase():
    found = rates(lambda optimizer: StepDecay(StepDecayOptions(step_size=2, gamma=0.5), optimizer), 6)
    assert found == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025])


def test_step_decay_by_default_divides_by_ten():
    found = rates(lambda optimizer: StepDecay(StepDecayOptions(step_size=1), optimizer), 3)
    assert found == pytest.approx([0.1, 0.01, 0.001])


def test_every_parameter_group_follows_from_its_own_rate():
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 1.0)]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    WarmupLinear(WarmupOptions(warmup_steps=2), optimizer, 4)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.05, 0.5])


def test_a_schedule_continues_from_its_saved_state():
    def fresh():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
        return optimizer, WarmupCosine(WarmupOptions(warmup_steps=2), optimizer, 10)

    optimizer, scheduler = fresh()
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    again, resumed = fresh()
    again.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    for _ in range(5):
        optimizer.step()
        scheduler.step()
        again.step()
        resumed.step()
        assert again.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


# --- in a run


def scheduled(scheduler, **sections):
    """Ten steps."""
    return line(dataset={"x": [1.0] * 10, "y": [1.0] * 10}, scheduler=scheduler, **sections)


def test_the_first_step_of_a_warmup_has_a_rate_above_zero(tmp_path):
    run = train(
        line(scheduler={"name": "warmup_linear", "warmup_steps": 4, "total_steps": 10}), tmp_path
    ).run_dir
    assert weights(run)["w"].item() == pytest.approx(0.05)


def test_the_length_of_the_run_is_steps_per_epoch_times_epochs(tmp_path):
    """20 samples in batches of 8 are 3 batches, 2 windows of two: 4 steps in two epochs."""
    config = tiny(scheduler={"name": "warmup_linear"}, trainer={"accumulate": 2})
    run = train(config, tmp_path).run_dir
    assert [r["lr"] for r in records(run, "batch")] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert [r["lr"] for r in records(run, "epoch")] == pytest.approx([0.005, 0.0])


@pytest.mark.parametrize("name", ["warmup_cosine", "warmup_linear"])
@pytest.mark.parametrize(("steps", "total"), [(10, 10), (20, 10), (1, 1)])
def test_a_warmup_as_long_as_the_schedule_is_a_configuration_error(tmp_path, name, steps, total):
    config = scheduled({"name": name, "warmup_steps": steps, "total_steps": total})
    with pytest.raises(ConfigError) as raised:
        train(config, tmp_path)
    assert f"scheduler.warmup_steps ({steps}) must be smaller than total_steps ({total})" in str(raised.value)
    assert raised.value.exit_code == 2
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["warmup_cosine", "warmup_linear"])
@pytest.mark.parametrize("steps", [10, 20])
def test_a_warmup_as_long_as_the_run_is_a_configuration_error_at_its_option(tmp_path, name, steps):
    with pytest.raises(ConfigError) as raised:
        train(scheduled({"name": name, "warmup_steps": steps}), tmp_path)
    (found,) = raised.value.diagnostics
    assert found.path == "scheduler.warmup_steps"
    assert f"scheduler.warmup_steps ({steps}) must be smaller than the 10 optimizer steps" in found.message
    assert not (tmp_path / "runs").exists()


def test_a_floor_above_the_rate_is_a_configuration_error_at_its_option(tmp_path):
    with pytest.raises(ConfigError) as raised:
        train(scheduled({"name": "warmup_cosine", "min_lr": 0.2}), tmp_path)
    (found,) = raised.value.diagnostics
    assert found.path == "scheduler.min_lr"
    assert "min_lr (0.2) is above optimizer.lr (0.1)" in found.message


def test_without_a_scheduler_the_rate_is_constant(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    assert {record["lr"] for kind in ("batch", "epoch") for record in records(run, kind)} == {0.01}


@pytest.mark.parametrize("values", [{"step_size": 0}, {"step_size": 1, "gamma": 0.0}])
def test_a_staircase_that_leads_nowhere_is_refused(values):
    with pytest.raises(ValueError, match=r"step_size|gamma"):
        StepDecayOptions(**values)
