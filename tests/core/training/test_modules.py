"""Modules of a run: their modes and buffers, losses that learn, and components that cannot be trained with."""

import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from support.by_hand import line
from support.runs import InOrder, assert_identical, checkpoint, records, run_dirs, tiny, train, weights
from trainlattice import (
    Callback,
    Options,
    register,
    register_dataset,
    register_loss,
    register_model,
    register_optimizer,
    register_scheduler,
)
from trainlattice.contracts.records import DatasetContract, ModeContract
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import (
    CheckpointWriteError,
    ConfigError,
    NonFiniteError,
    PluginError,
    TrainLatticeError,
    UsageError,
)
from trainlattice.runs.evaluation import evaluate_run
from trainlattice.training.mode import Parts
from trainlattice.training.supervised import Supervised

pytestmark = pytest.mark.torch
NAN = math.nan


def no_run(directory):
    return not (directory / "runs").exists()


# --- modes


@register_model("partly_frozen")
class PartlyFrozen(nn.Module):
    """A batch norm that its author froze, one that learns, and dropout; notes the modes of training passes."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.BatchNorm1d(4).eval()
        self.live = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(4, 3)
        self.seen = []

    def forward(self, x):
        if torch.is_grad_enabled() and x.device.type != "meta":
            self.seen.append((self.training, self.frozen.training, self.live.training, self.dropout.training))
        return self.head(self.dropout(self.live(self.frozen(x))))


class LeavesInEval(Callback):
    """Puts the model into eval mode in one of its methods, as a look at some samples may."""

    def __init__(self, method):
        self.method = method

    def on_run_start(self, trainer):
        self.model = trainer.parts.models["model"]
        self.model.seen.clear()
        self.leave("on_run_start")

    def leave(self, method):
        if method == self.method:
            self.model.eval()

    def on_epoch_start(self, trainer):
        self.leave("on_epoch_start")

    def on_phase_start(self, trainer, phase):
        self.leave(f"on_phase_start {phase}")

    def on_batch_end(self, trainer, phase, container):
        self.leave(f"on_batch_end {phase}")

    def on_step_end(self, trainer):
        self.leave("on_step_end")

    def on_phase_end(self, trainer, phase):
        self.leave(f"on_phase_end {phase}")

    def on_epoch_end(self, trainer, metrics):
        self.leave("on_epoch_end")

    def on_checkpoint(self, trainer, path):
        self.leave("on_checkpoint")


@pytest.fixture
def untouched(tmp_path):
    """Weights of a run whose callback leaves the model alone."""
    directory = tmp_path / "untouched"
    return weights(
        train(tiny(model={"name": "partly_frozen"}), directory, extra_callbacks=[LeavesInEval("")]).run_dir
    )


@pytest.mark.parametrize(
    "method",
    [
        "on_epoch_end",
        "on_step_end",
        "on_batch_end train",
        "on_phase_end train",
        "on_phase_end val",
        "on_checkpoint",
        "on_run_start",
        "on_epoch_start",
        "on_phase_start train",
    ],
)
def test_a_callback_that_leaves_a_model_in_eval_mode_changes_nothing(tmp_path, untouched, method):
    leaves = LeavesInEval(method)
    run = train(tiny(model={"name": "partly_frozen"}), tmp_path, extra_callbacks=[leaves]).run_dir
    assert leaves.model.seen == [(True, False, True, True)] * 6
    state = weights(run)
    assert state["frozen.num_batches_tracked"].item() == 0
    assert state["live.num_batches_tracked"].item() == 6
    assert_identical(state, untouched)


def test_what_a_callback_freezes_in_a_model_that_trains_stays_frozen(tmp_path):
    class Freezes(Callback):
        def on_run_start(self, trainer):
            self.model = trainer.parts.models["model"]
            self.model.seen.clear()

        def on_epoch_start(self, trainer):
            self.model.live.eval()

    freezes = Freezes()
    run = train(tiny(model={"name": "partly_frozen"}), tmp_path, extra_callbacks=[freezes]).run_dir
    assert freezes.model.seen == [(True, False, False, True)] * 6
    assert weights(run)["live.num_batches_tracked"].item() == 0


# --- buffers


@register_model("with_norm")
class Normed(nn.Module):
    """y = w * batch_norm(x) + b, with a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.head = nn.Linear(1, 1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        if self.training:
            self.seen += x.detach().mean()
        return self.head(self.norm(x))


@register_model("with_norm_anew")
class NormedAnew(Normed):
    """Its running mean is a new tensor after each step, as ``self.mean = 0.9 * self.mean + ...`` makes it."""

    def forward(self, x):
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * x.detach().mean(dim=0)
        return self.head(self.norm(x))


NORMED: list[list[float]] = []


@register_dataset("with_norm")
def open_normed():
    (x,) = NORMED
    inputs = torch.tensor(x).unsqueeze(1)
    return Splits(
        TensorData(inputs, torch.ones(len(x), 1)),
        TensorData(torch.ones(2, 1), torch.ones(2, 1)),
        contract=DatasetContract((1,), "regression", 1),
    )


def normed(x, **trainer):
    NORMED[:] = [x]
    return {
        **line(trainer={"nonfinite": "skip", **trainer}),
        "model": {"name": "with_norm"},
        "dataset": {"name": "with_norm", "batch_size": 2},
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
        "callbacks": [],
    }


GOOD = [[1.0, 2.0], [3.0, 5.0], [0.0, 7.0]]


@pytest.mark.parametrize(
    ("name", "place", "bad"),
    [
        ("with_norm", 0, NAN),
        ("with_norm", 1, math.inf),
        ("with_norm", 3, NAN),
        ("with_norm_anew", 1, NAN),
    ],
)
def test_running_statistics_are_as_if_a_bad_batch_had_not_been(tmp_path, name, place, bad):
    batches = [*GOOD]
    batches.insert(place, [1.0, bad])
    ends = []
    for x in (batches, GOOD):
        config = {**normed([v for batch in x for v in batch]), "model": {"name": name}}
        run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
        ends.append(checkpoint(run)["states"])
    spoiled, straight = ends
    assert spoiled["model/model"]["norm.num_batches_tracked"].item() == 3
    assert_identical(spoiled["model/model"], straight["model/model"])
    assert_identical(spoiled["update/optimizer"], straight["update/optimizer"])


def test_running_statistics_are_put_back_for_a_whole_window(tmp_path):
    """The first micro-batch of the skipped window was good."""
    window = [[1.0, 2.0], [3.0, 5.0]]
    bad = [[4.0, 4.0], [1.0, NAN]]
    ends = []
    for x in ([*window, *bad, *window], [*window, *window]):
        config = normed([v for batch in x for v in batch], accumulate=2)
        run = train(config, tmp_path, extra_callbacks=[InOrder()]).run_dir
        ends.append(weights(run))
    assert ends[0]["norm.num_batches_tracked"].item() == 4
    assert_identical(*ends)


# --- losses that learn


@register_loss("scaled")
class Scaled(nn.Module):
    """``exp(-s) * (pred - target)^2 + s`` with a learned s."""

    def __init__(self):
        super().__init__()
        self.s = nn.Parameter(torch.tensor(0.5))

    def forward(self, pred, target):
        return (torch.exp(-self.s) * (pred - target).square() + self.s).mean()


def scaled(**trainer):
    points = {"x": [1.0] * 4, "y": [1.0, 2.0, 3.0, 4.0], "val_x": [1.0, 2.0], "val_y": [2.0, 5.0]}
    config = line(dataset={**points, "batch_size": 2}, trainer={"epochs": 3, **trainer})
    return {**config, "loss": {"name": "scaled"}, "callbacks": []}


@pytest.mark.parametrize("name", ["last.pt", "best.pt"])
def test_evaluating_uses_what_a_loss_has_learned(tmp_path, name):
    run = train(scaled(), tmp_path).run_dir
    held = checkpoint(run, name)
    assert held["states"]["loss"]["s"].item() != 0.5
    expected = {r["step"]: r["val_loss"] for r in records(run, "validation")}
    found = evaluate_run(run / "checkpoints" / name)
    assert found.metrics == {"val_loss": expected[held["trainer"]["global_step"]]}


def test_a_loss_parameter_learns_as_by_hand(tmp_path):
    """One step over y = 1 at w = 0, s = 0.5: gradients -2 e^-s for w and 1 - e^-s for s."""
    config = {**line(), "loss": {"name": "scaled"}}
    states = checkpoint(train(config, tmp_path).run_dir)["states"]
    assert states["loss"]["s"].item() == pytest.approx(0.5 - 0.1 * (1 - math.exp(-0.5)), rel=1e-6)
    assert states["model/model"]["w"].item() == pytest.approx(0.2 * math.exp(-0.5), rel=1e-6)


def test_a_loss_parameter_that_is_not_finite_is_not_written_over_a_good_checkpoint(tmp_path):
    class Spoils(Callback):
        def on_epoch_end(self, trainer, metrics):
            if trainer.state.epoch == 2:
                trainer.parts.loss.terms[0].loss.s.data.fill_(NAN)

    with pytest.raises(NonFiniteError, match="after step 4 the weight s of the loss is not finite"):
        train(scaled(), tmp_path, extra_callbacks=[Spoils()])
    (run,) = run_dirs(tmp_path)
    assert checkpoint(run)["trainer"]["epoch"] == 1
    assert torch.isfinite(checkpoint(run)["states"]["loss"]["s"])


# --- what does not go together is refused before a run exists


class BroadcastOptions(Options):
    means_to: bool = False


@register_loss("all_pairs", options=BroadcastOptions)
class AllPairs(nn.Module):
    """Compares [N] with [N, 1]."""

    def __init__(self, options):
        super().__init__()
        if options.means_to:
            self.broadcasts = True

    def forward(self, pred, target):
        return (pred - target).square().mean()


@register_model("flat_line")
class FlatLine(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return (x * self.w).flatten()


def broadcasting(means_to):
    config = line(dataset={"x": [1.0] * 4, "y": [1.0, 2.0, 3.0, 6.0], "batch_size": 4})
    return {**config, "model": {"name": "flat_line"}, "loss": {"name": "all_pairs", "means_to": means_to}}


def test_a_loss_that_would_compare_each_with_all_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"shape \[2\] and targets \[2, 1\].*has broadcasts = True"):
        train(broadcasting(False), tmp_path)
    assert no_run(tmp_path)


def test_a_loss_that_means_to_is_not(tmp_path):
    """Every prediction against every target: the gradient is 2 (0 - 3)."""
    run = train(broadcasting(True), tmp_path).run_dir
    assert weights(run)["w"].item() == pytest.approx(0.6, rel=1e-6)


@register_model("detached")
class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x).detach()


@register_model("without_grad")
class WithoutGrad(Detached):
    def forward(self, x):
        with torch.no_grad():
            return self.head(x)


@pytest.mark.parametrize("name", ["detached", "without_grad"])
def test_a_model_whose_output_depends_on_no_parameter_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="does not depend on any parameter that is trained"):
        train(tiny(model={"name": name}), tmp_path)
    assert no_run(tmp_path)


class TypeOptions(Options):
    dtype: str


@register_dataset("typed", options=TypeOptions)
def open_typed(options):
    inputs = torch.ones(6, 4).to(getattr(torch, options.dtype))
    contract = DatasetContract((4,), "classification", 3)
    return Splits(TensorData(inputs, torch.tensor([0, 1, 2] * 2)), contract=contract)


@pytest.mark.parametrize(
    ("dtype", "fits"),
    [("int64", False), ("float16", False), ("uint8", False), ("float32", True), ("float64", True)],
)
def test_inputs_of_a_number_format_that_the_model_does_not_take_are_refused(tmp_path, dtype, fits):
    config = tiny(dataset={"name": "typed", "dtype": dtype})
    if fits:
        assert train(config, tmp_path).status == "finished"
        return
    with pytest.raises(
        ConfigError, match=rf"do not fit: a batch of input \[2, 4\] {dtype}, target \[2\] int64"
    ):
        train(config, tmp_path)
    assert no_run(tmp_path)


# --- components of other kinds


@register_scheduler("no_schedule")
def no_schedule(optimizer):
    LambdaLR(optimizer, lambda step: 1.0)  # and nothing is returned


@register_scheduler("plateau")
def plateau(optimizer):
    return ReduceLROnPlateau(optimizer)


@register_optimizer("lbfgs")
def lbfgs(params):
    return torch.optim.LBFGS(params)


@register_optimizer("no_optimizer")
def no_optimizer(params):
    return list(params)


@pytest.mark.parametrize(
    ("section", "name", "says"),
    [
        ("scheduler", "no_schedule", "returned a NoneType, expected a torch.optim.lr_scheduler.LRScheduler"),
        ("scheduler", "plateau", "is stepped by a metric, and schedules here by the optimizer step"),
        ("optimizer", "lbfgs", r"evaluates the loss several times a step \(a closure\)"),
        ("optimizer", "no_optimizer", "returned a list, expected a torch.optim.Optimizer"),
    ],
)
def test_what_the_step_cannot_work_with_is_the_plugins_fault(tmp_path, section, name, says):
    with pytest.raises(PluginError, match=f"{name}.*{says}") as raised:
        train({**line(), section: {"name": name}}, tmp_path)
    assert raised.value.exit_code == 3
    assert no_run(tmp_path)


@pytest.mark.parametrize("extra", [object(), None, Callback, "progress"])
def test_extra_callbacks_are_callbacks(tmp_path, extra):
    with pytest.raises(UsageError, match=r"extra_callbacks holds .*expected instances of Callback"):
        train(line(), tmp_path, extra_callbacks=[Callback(), extra])
    assert no_run(tmp_path)


class OddMetricOptions(Options):
    metric: str

    def contract(self):
        return ModeContract(required=("model", "dataset"), optional=("optimizer", "loss", "scheduler"))


@register("mode", "odd_metric", options=OddMetricOptions)
class OddMetric(Supervised):
    """Measures something under a name of its choice."""

    def __init__(self, options, parts):
        super().__init__(options, parts)
        self.metric = options.metric

    def measure(self, container):
        return {**super().measure(container), self.metric: torch.tensor(7.0)}


@pytest.mark.parametrize("metric", ["step", "epoch", "type"])
def test_a_metric_cannot_take_the_name_of_what_every_record_says(tmp_path, metric):
    with pytest.raises(TrainLatticeError, match=f"a metric cannot be called {metric}"):
        train({**line(), "mode": {"name": "odd_metric", "metric": metric}}, tmp_path)


def test_a_metric_of_another_name_stands_in_the_records(tmp_path):
    run = train({**line(), "mode": {"name": "odd_metric", "metric": "steps"}}, tmp_path).run_dir
    assert records(run, "batch")[0]["steps"] == 7.0
    assert records(run, "epoch")[0]["train_steps"] == 7.0


class Unstorable(Callback):
    def __init__(self, state):
        self.state, self.steps = state, 0

    def on_step_end(self, trainer):
        self.steps += 1

    def state_dict(self):
        return self.state


@pytest.mark.parametrize("state", [{"held": object()}, object(), {"open": open}])
def test_a_callback_whose_state_nobody_could_load_costs_no_training(tmp_path, state):
    callback = Unstorable(state)
    with pytest.raises(CheckpointWriteError, match=r"the state of the callback 'extra#2' cannot be saved"):
        train(line(trainer={"epochs": 5}), tmp_path, extra_callbacks=[Callback(), callback])
    assert callback.steps == 0


def test_components_of_other_kinds_have_their_states_saved_by_place_or_role():
    class Kept:
        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            return None

    alone, first, second, by_role = (Kept() for _ in range(4))
    others = {
        "a": alone,
        "b": [first, object(), second],
        "c": {"teacher": by_role, "plain": 1},
        "d": object(),
    }
    assert Parts({}, {}, None, others=others).stateful() == {
        "other/a": alone,
        "other/b/0": first,
        "other/b/2": second,
        "other/c/teacher": by_role,
    }


class Plain(Options):
    rate: float = 1.0


@register_scheduler("keeps_its_options", options=Plain)
class KeepsItsOptions(LambdaLR):
    """LRScheduler saves all its attributes."""

    def __init__(self, options, optimizer):
        self.options = options
        super().__init__(optimizer, lambda step: options.rate)


class KeepsAnObject(nn.Linear):
    def get_extra_state(self):
        return Plain()

    def set_extra_state(self, state):
        return None


register_model("keeps_an_object")(lambda: KeepsAnObject(4, 3))


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ({"scheduler": {"name": "keeps_its_options"}}, "the state of the optimizer, with its schedule,"),
        ({"model": {"name": "keeps_an_object"}}, "the extra state of the model"),
    ],
)
def test_a_state_that_nobody_could_load_costs_no_training(tmp_path, sections, what):
    config = {**tiny(), **sections}
    with pytest.raises(CheckpointWriteError, match=f"{what} cannot be saved"):
        train(config, tmp_path)
    (run,) = run_dirs(tmp_path)
    assert records(run, "batch") == []
