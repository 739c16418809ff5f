"""How gradients become an update: clipping, schedule, scaler."""

import math

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR

from support.by_hand import Line, LineOptions, line
from support.runs import records, train, weights
from trainlattice.training.strategy import SingleDevice
from trainlattice.training.update import Update

pytestmark = pytest.mark.torch
STRATEGY = SingleDevice(torch.device("cpu"))


def update_of(model, lr=0.1, **arguments):
    return Update(torch.optim.SGD(model.parameters(), lr=lr), STRATEGY, **arguments)


def step(update, model, y, x=1.0):
    """One step on one sample with squared error; its outcome."""
    update.zero_grad()
    loss = (model(torch.tensor(x)) - y).square()
    update.backward(loss)
    return update.apply([loss])


@pytest.mark.parametrize(
    ("y", "w"),
    [
        (0.25, 0.05),  # gradient -0.5: below the norm, the step is 0.1 * 0.5
        (5.0, 0.1),  # gradient -10: cut to 1
        (-5.0, -0.1),
    ],
)
def test_gradients_are_clipped_by_their_total_norm(tmp_path, y, w):
    config = line(dataset={"x": [1.0], "y": [y]}, trainer={"max_grad_norm": 1.0})
    assert weights(train(config, tmp_path).run_dir)["w"].item() == pytest.approx(w, rel=1e-5)


def test_the_norm_is_that_of_the_whole_window(tmp_path):
    """Two batches of gradient -10 and +10 cancel: clipping each alone would leave a step of another size."""
    config = line(
        dataset={"x": [1.0, 1.0], "y": [5.0, -4.0], "batch_size": 1},
        trainer={"accumulate": 2, "max_grad_norm": 1.0},
    )
    assert weights(train(config, tmp_path).run_dir)["w"].item() == pytest.approx(0.1, rel=1e-5)


def test_the_norm_is_taken_over_all_parameters():
    model = torch.nn.ParameterList([torch.zeros(1), torch.zeros(1)])
    update = Update(torch.optim.SGD(model.parameters(), lr=1.0), STRATEGY, max_grad_norm=1.0)
    update.zero_grad()
    loss = (-30 * model[0] + 40 * model[1]).sum()
    update.backward(loss)
    assert update.apply([loss]) == "applied"
    assert update.grad_norm.item() == pytest.approx(50.0)
    assert [p.item() for p in model] == pytest.approx([0.6, -0.8], rel=1e-5)


def test_the_first_step_applies_the_first_rate_and_the_schedule_moves_after_it():
    model = Line(LineOptions())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = Update(optimizer, STRATEGY, scheduler=LambdaLR(optimizer, lambda s: 1 / (s + 1)))
    assert step(update, model, 1.0) == "applied"
    assert model.w.item() == pytest.approx(0.2)
    assert (update.applied_lr, update.next_lr) == (0.1, 0.05)


def test_records_hold_the_rate_that_was_applied_and_the_epoch_the_next_one(tmp_path):
    config = line(
        dataset={"x": [1.0] * 4, "y": [1.0] * 4},
        scheduler={"name": "step_decay", "step_size": 2, "gamma": 0.5},
    )
    run = train(config, tmp_path).run_dir
    assert [record["lr"] for record in records(run, "batch")] == [0.1, 0.1, 0.05, 0.05]
    assert records(run, "epoch")[0]["lr"] == 0.025


# --- the scaler, on the CPU through the Python API


def scaled(model, **arguments):
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=2)
    return update_of(model, scaler=scaler, **arguments)


@pytest.mark.parametrize(("y", "w"), [(0.25, 0.05), (5.0, 0.1)])
def test_gradients_are_unscaled_before_they_are_clipped(y, w):
    model = Line(LineOptions())
    assert step(scaled(model, max_grad_norm=1.0), model, y) == "applied"
    assert model.w.item() == pytest.approx(w, rel=1e-5)


def test_the_scale_is_updated_once_for_each_window():
    model = Line(LineOptions())
    update = scaled(model)
    for _ in range(4):
        update.zero_grad()
        losses = [(model(torch.tensor(1.0)) - 1).square() / 2 for _ in range(2)]
        for loss in losses:
            update.backward(loss)
        update.apply(losses)
    assert update.scaler.get_scale() == 65536.0 * 4


def test_a_window_that_the_scaler_skips_changes_nothing_and_advances_no_schedule():
    model = Line(LineOptions())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    schedule = LambdaLR(optimizer, lambda s: (s + 1) / 4)
    update = Update(optimizer, STRATEGY, scheduler=schedule, scaler=scaler)
    assert step(update, model, 1.0, x=math.inf) == "skipped by the scaler"
    assert model.w.item() == 0.0
    assert optimizer.state_dict()["state"] == {}
    assert scaler.get_scale() == 32768.0
    assert update.next_lr == 0.025
    assert step(update, model, 1.0) == "applied"
    assert model.w.item() == pytest.approx(0.05)
    assert (update.applied_lr, update.next_lr) == (0.025, 0.05)


def test_the_scaler_and_the_schedule_continue_where_they_were():
    def fresh():
        model = Line(LineOptions())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=2)
        return model, Update(
            optimizer, STRATEGY, scheduler=LambdaLR(optimizer, lambda s: 1 / (s + 1)), scaler=scaler
        )

    model, update = fresh()
    for _ in range(5):
        step(update, model, 1.0)
    again, resumed = fresh()
    resumed.load_state_dict(update.state_dict())
    assert resumed.scaler.get_scale() == 262144.0
    assert resumed.next_lr == update.next_lr == pytest.approx(0.1 / 6)
    again.load_state_dict(model.state_dict())
    step(resumed, again, 1.0)
    step(update, model, 1.0)
    assert again.w.item() == model.w.item()
    assert resumed.scaler.get_scale() == 524288.0


@pytest.mark.parametrize("saved", [True, False])
def test_a_schedule_on_one_side_only_is_refused(saved):
    def made(scheduled):
        optimizer = torch.optim.SGD(Line(LineOptions()).parameters(), lr=0.1)
        return Update(
            optimizer, STRATEGY, scheduler=LambdaLR(optimizer, lambda s: 1.0) if scheduled else None
        )

    with pytest.raises(KeyError, match="scheduler"):
        made(not saved).load_state_dict(made(saved).state_dict())
