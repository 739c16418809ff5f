"""Losses, gradients and weights that are not finite: stop, skip or continue."""

import math

import pytest
import torch
from torch import nn

from support.by_hand import Line, LineOptions, line
from support.runs import (
    InOrder,
    assert_identical,
    checkpoint,
    digests,
    records,
    run_dirs,
    tiny,
    train,
    weights,
)
from trainlattice import Callback, register_model, register_optimizer
from trainlattice.diagnostics.errors import NonFiniteError
from trainlattice.training.nonfinite import FiniteGuard, all_finite
from trainlattice.training.state import TrainerState
from trainlattice.training.strategy import SingleDevice
from trainlattice.training.update import Update

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
NAN, INF = math.nan, math.inf
MAKERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.1),
    "fused_adamw": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "fused_sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, fused=True),
}


@register_optimizer("fused_adamw")
def fused_adamw(params):
    return torch.optim.AdamW(params, lr=0.1, fused=True)


def updated(name, policy="stop", **arguments):
    model = Line(LineOptions(w0=0.5))
    guard = FiniteGuard(policy, CPU, budget=10)
    return model, guard, Update(MAKERS[name](model.parameters()), SingleDevice(CPU), guard=guard, **arguments)


def step(model, guard, update, x=1.0):
    """One step on ``(w x - 1)^2``; its outcome, counted as the Trainer does."""
    update.zero_grad()
    loss = (model(torch.tensor(x)) - 1).square()
    update.backward(loss)
    outcome = update.apply([loss])
    if outcome == "applied":
        guard.count_step()
    return outcome


def state(model, update):
    """Weight and the optimizer's state, copied."""
    held = {"w": model.w.detach(), **update.optimizer.state_dict()["state"].get(0, {})}
    return {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in held.items()}


# --- one update


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_stop_freezes_weights_and_optimizer_at_the_first_bad_step(name, bad, clip):
    model, guard, update = updated(name, max_grad_norm=clip)
    step(model, guard, update)
    step(model, guard, update)
    before = state(model, update)
    guard.require_clean()
    for x in (bad, 1.0, 1.0):
        step(model, guard, update, x)
    assert_identical(state(model, update), before)
    with pytest.raises(NonFiniteError, match="of step 3 is not finite"):
        guard.require_clean()


@pytest.mark.parametrize("name", ["fused_adamw", "fused_sgd"])
def test_a_fused_optimizer_takes_finite_steps_as_it_does_without_a_guard(name):
    model, guard, update = updated(name)
    plain = Line(LineOptions(w0=0.5))
    optimizer = MAKERS[name](plain.parameters())
    for x in (1.0, 0.5, 2.0):
        step(model, guard, update, x)
        optimizer.zero_grad()
        (plain(torch.tensor(x)) - 1).square().backward()
        optimizer.step()
    assert torch.equal(model.w, plain.w)


@pytest.mark.parametrize(("name", "asks"), [("fused_adamw", False), ("adamw", True)])
def test_with_a_fused_optimizer_no_step_reads_the_device(name, asks, monkeypatch):
    asked = []
    monkeypatch.setattr(FiniteGuard, "refuses_now", lambda self: bool(asked.append(self)))
    step(*updated(name))
    assert bool(asked) == asks


@pytest.mark.parametrize("name", MAKERS)
def test_skip_leaves_out_the_step_and_nothing_else(name):
    model, guard, update = updated(name, "skip")
    outcomes = []
    for x in (1.0, NAN, 1.0):
        outcomes.append(step(model, guard, update, x))
    assert outcomes == ["applied", "skipped as not finite", "applied"]
    other = updated(name, "skip")
    step(*other)
    step(*other)
    assert_identical(state(model, update), state(other[0], other[2]))


def test_continue_does_what_the_optimizer_does():
    model, guard, update = updated("sgd", "continue")
    assert step(model, guard, update, NAN) == "applied"
    assert math.isnan(model.w.item())
    guard.require_clean()


@pytest.mark.parametrize("budget", [0, 2])
def test_the_budget_is_how_many_steps_may_be_left_out(budget):
    guard, state = FiniteGuard("skip", CPU, budget=budget), TrainerState(global_step=7)
    guard.begin(state)
    for skipped in range(budget + 1):
        state.nonfinite_updates = skipped
        guard.require_budget()
    state.nonfinite_updates = budget + 1
    with pytest.raises(
        NonFiniteError, match=rf"{budget + 1} updates .* after step 7.*nonfinite_budget \({budget}\)"
    ):
        guard.require_budget()


@pytest.mark.parametrize("bad", range(3))
def test_a_bad_value_is_seen_in_any_loss_or_gradient_of_any_number_format(bad):
    values = [torch.ones(()), torch.ones(3, dtype=torch.bfloat16), torch.ones(2)]
    kept = [value.clone() for value in values]
    guard = FiniteGuard("stop", CPU, budget=0)
    guard.inspect(values[:1], values[1:], None)
    assert guard.flag.item() == 0
    assert all(torch.equal(value, before) for value, before in zip(values, kept, strict=True))
    values[bad].view(-1)[-1] = NAN
    guard.inspect(values[:1], values[1:], None)
    assert guard.flag.item() == 1


def test_a_finite_norm_does_not_hide_a_bad_loss():
    guard = FiniteGuard("stop", CPU, budget=0)
    guard.inspect([torch.tensor(INF)], [torch.ones(1)], torch.tensor(1.0))
    assert guard.refuses_now()


def test_all_finite_looks_into_containers_and_leaves_integers_alone():
    good = {"a": [torch.ones(2), (torch.tensor(3), "text", None)]}
    assert all_finite(good)
    assert not all_finite({**good, "b": [[torch.tensor([1.0, -INF])]]})


# --- a run


@pytest.fixture
def nan_points(monkeypatch):
    """Options refuse NaN in a configuration: the data is poisoned where it is opened."""
    from support import by_hand

    opened = by_hand._column
    monkeypatch.setattr(by_hand, "_column", lambda values: opened([NAN if v == -99.0 else v for v in values]))


def poisoned(rows, size=8, **sections):
    x = [-99.0 if row in rows else 1.0 for row in range(size)]
    return line(**{**sections, "dataset": {"x": x, "y": [1.0 + i for i in range(size)]}})


@pytest.mark.usefixtures("nan_points")
@pytest.mark.parametrize("log_every", [1, 2, 1000])
@pytest.mark.parametrize("optimizer", [{"name": "sgd", "lr": 0.1}, {"name": "fused_adamw"}])
def test_stop_names_the_exact_step_and_keeps_the_weights_before_it(tmp_path, optimizer, log_every):
    """Whenever the host looks: with a fused optimizer it may be many steps later."""
    config = poisoned([4], trainer={"log_every": log_every})
    with pytest.raises(NonFiniteError, match=r"the loss or a gradient of step 5 is not finite") as raised:
        train({**config, "optimizer": optimizer}, tmp_path, extra_callbacks=[InOrder()])
    assert raised.value.exit_code == 12
    (run,) = run_dirs(tmp_path)
    emergency = checkpoint(run, "emergency.pt")
    assert emergency["trainer"]["global_step"] == 4
    good = poisoned([], trainer={"max_steps": 4})
    expected = train({**good, "optimizer": optimizer}, tmp_path / "good", extra_callbacks=[InOrder()]).run_dir
    assert torch.equal(emergency["states"]["model/model"]["w"], weights(expected)["w"])
    assert not (run / "checkpoints" / "last.pt").exists()


@pytest.mark.usefixtures("nan_points")
def test_stop_names_the_exact_step_of_a_resumed_run_too(tmp_path):
    config = poisoned([], trainer={"epochs": 2, "log_every": 1000})
    config["optimizer"] = {"name": "fused_adamw"}

    class Poison(Callback):
        def on_epoch_start(self, trainer):
            if trainer.state.epoch == 1:
                trainer.train.dataset.inputs[2] = NAN

    first = train({**config, "trainer": {**config["trainer"], "epochs": 1}}, tmp_path).run_dir
    with pytest.raises(NonFiniteError, match="of step 11 is not finite"):
        train(config, tmp_path, resume=first, extra_callbacks=[InOrder(), Poison()])


@pytest.mark.usefixtures("nan_points")
def test_skipped_steps_advance_neither_steps_nor_the_schedule(tmp_path):
    sections = {
        "scheduler": {"name": "step_decay", "step_size": 1, "gamma": 0.5},
        "trainer": {"nonfinite": "skip", "nonfinite_budget": 2},
    }
    result = train(poisoned([1, 3], **sections), tmp_path, extra_callbacks=[InOrder()])
    assert result.global_step == 6
    rates = [r["lr"] for r in records(result.run_dir, "batch")]
    assert rates == pytest.approx([0.1 * 0.5**s for s in range(6)])
    skipped = [r for r in records(result.run_dir, "event") if r["event"] == "skipped_step"]
    assert [(r["step"], r["reason"], r["loss"]) for r in skipped] == [
        (1, "skipped as not finite", None),
        (2, "skipped as not finite", None),
    ]
    assert checkpoint(result.run_dir)["trainer"]["skipped_steps"] == 2


@pytest.mark.usefixtures("nan_points")
def test_one_step_more_than_the_budget_ends_the_run(tmp_path):
    config = poisoned([1, 3, 5], trainer={"nonfinite": "skip", "nonfinite_budget": 2})
    with pytest.raises(NonFiniteError, match=r"3 updates .*the last after step 3"):
        train(config, tmp_path, extra_callbacks=[InOrder()])


class Spoils(Callback):
    """Makes a weight NaN when the second epoch ends, as an update that overflows does."""

    def on_epoch_end(self, trainer, metrics):
        if trainer.state.epoch == 2:
            next(trainer.parts.models["model"].parameters()).data.view(-1)[0] = NAN


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_a_weight_that_is_not_finite_is_not_written_over_a_good_checkpoint(tmp_path, policy):
    with pytest.raises(
        NonFiniteError, match=r"after step 6 the weight layers\.1\.weight of the model is not finite"
    ):
        train(tiny(trainer={"epochs": 3, "nonfinite": policy}), tmp_path, extra_callbacks=[Spoils()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["epoch"] == 1
    assert all_finite(checkpoint(run)["states"])


def test_continue_writes_what_is_not_finite_to_a_file_of_its_own(tmp_path):
    kept = {}

    class Keep(Callback):
        def on_checkpoint(self, trainer, path):
            kept.setdefault(path.name, digests(path.parent)[path.name])

    config = tiny(trainer={"epochs": 3, "nonfinite": "continue"})
    run = train(config, tmp_path, extra_callbacks=[Spoils(), Keep()]).run_dir
    assert checkpoint(run)["trainer"]["epoch"] == 1
    assert digests(run / "checkpoints")["last.pt"] == kept["last.pt"]
    assert checkpoint(run, "nonfinite.pt")["trainer"]["epoch"] == 3
    files = [r["files"] for r in records(run, "event") if r["event"] == "checkpoint"]
    assert files == [["last.pt", "best.pt"], ["nonfinite.pt"], ["nonfinite.pt"]]


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_mask_of_infinities_is_no_fault(tmp_path, policy):
    @register_model("masked")
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.full((4,), -INF))
            self.layer = nn.Linear(4, 3)

        def forward(self, x):
            return self.layer(x)

    run = train(tiny(model={"name": "masked"}, trainer={"nonfinite": policy}), tmp_path).run_dir
    assert checkpoint(run)["trainer"]["epoch"] == 2
    assert not (run / "checkpoints" / "nonfinite.pt").exists()
