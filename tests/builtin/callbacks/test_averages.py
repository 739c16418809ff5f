"""ema and swa: averages by hand and by torch, evaluated, saved, resumed, swapped back."""

import signal

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from support.by_hand import line
from support.runs import (
    InOrder,
    InterruptAtStep,
    assert_identical,
    checkpoint,
    interrupted,
    records,
    run_dirs,
    tiny,
    train,
    weights,
)
from trainlattice import Callback, register_model
from trainlattice.diagnostics.errors import CheckpointError, RunTerminated
from trainlattice.runs.evaluation import evaluate_run

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0, 1.0], "val_y": [1.0, 1.0], "batch_size": 1}


class BatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.again = self.last  # one module under two names

    def forward(self, x):
        return self.again(self.norm(self.first(x)))


@register_model("averaged_batch_norm")
def averaged_batch_norm(options):
    return BatchNorm()


class Weights(Callback):
    """The model after each step, and during validations."""

    def __init__(self):
        self.steps, self.validated = [], []

    def on_step_end(self, trainer):
        model = trainer.parts.models["model"]
        self.steps.append({name: value.clone() for name, value in model.state_dict().items()})

    def on_batch_end(self, trainer, phase, container):
        if phase == "val":
            model = trainer.parts.models["model"]
            self.validated.append({name: value.clone() for name, value in model.state_dict().items()})


def with_callbacks(config, *callbacks):
    return {**config, "callbacks": list(callbacks)}


def averages(run, name="callbacks:ema", file="last.pt"):
    return checkpoint(run, file)["states"]["callbacks"][name]


def test_ema_is_the_average_computed_by_hand(tmp_path):
    """w is 0.2, 0.36, 0.488, 0.5904 after the steps; half of the average stays."""
    run = train(with_callbacks(line(dataset=POINTS), {"name": "ema", "decay": 0.5}), tmp_path).run_dir
    average = 0.2
    for w in (0.36, 0.488, 0.5904):
        average = 0.5 * average + 0.5 * w
    held = averages(run)
    assert held["updates"] == 4
    assert held["weights"]["model"]["w"].item() == pytest.approx(average, rel=1e-6)
    assert weights(run)["w"].item() == pytest.approx(0.5904, rel=1e-6)
    assert records(run, "validation")[0]["val_loss"] == pytest.approx((average - 1) ** 2, rel=1e-5)


def test_with_warmup_the_first_updates_keep_less(tmp_path):
    """Update t keeps (1 + t) / (10 + t), at most the decay: 2 / 11, 3 / 12, then 0.3 in place of 4 / 13."""
    config = with_callbacks(line(dataset=POINTS), {"name": "ema", "decay": 0.3, "warmup": True})
    average = 0.2
    for w, kept in ((0.36, 2 / 11), (0.488, 3 / 12), (0.5904, 0.3)):
        average = kept * average + (1 - kept) * w
    held = averages(train(config, tmp_path).run_dir)["weights"]["model"]["w"]
    assert held.item() == pytest.approx(average, rel=1e-6)


def test_every_steps_leaves_the_others_out(tmp_path):
    """0.36 after step 2, 0.5904 after step 4."""
    config = with_callbacks(line(dataset=POINTS), {"name": "ema", "decay": 0.25, "every_steps": 2})
    held = averages(train(config, tmp_path).run_dir)
    assert held["updates"] == 2
    assert held["weights"]["model"]["w"].item() == pytest.approx(0.25 * 0.36 + 0.75 * 0.5904, rel=1e-6)


def test_a_step_that_was_skipped_is_no_update(tmp_path):
    points = {**POINTS, "x": [1.0, 3e38, 1.0, 1.0], "y": [1.0, -3e38, 1.0, 1.0]}  # its loss is infinite
    config = line(dataset=points, trainer={"nonfinite": "skip"})
    ema = {"name": "ema", "decay": 0.5}
    run = train(with_callbacks(config, ema), tmp_path, extra_callbacks=[InOrder()]).run_dir
    assert checkpoint(run)["trainer"]["global_step"] == 3
    assert averages(run)["updates"] == 3
    average = 0.5 * (0.5 * 0.2 + 0.5 * 0.36) + 0.5 * 0.488
    assert averages(run)["weights"]["model"]["w"].item() == pytest.approx(average, rel=1e-6)


@pytest.mark.parametrize("buffers", [False, True])
def test_ema_is_that_of_torch_and_stands_in_for_every_weight(tmp_path, buffers):
    seen = Weights()
    config = tiny(model={"name": "averaged_batch_norm"})
    ema = {"name": "ema", "decay": 0.8, "average_buffers": buffers}
    run = train(with_callbacks(config, ema), tmp_path, extra_callbacks=[seen]).run_dir
    by_torch = _averaged(seen.steps, get_ema_multi_avg_fn(0.8), buffers)
    held = averages(run)["weights"]["model"]
    names = {name for name, _ in BatchNorm().named_parameters(remove_duplicate=False)}
    assert held.keys() == names | ({"norm.running_mean", "norm.running_var"} if buffers else set())
    assert {"last.weight", "again.weight"} <= names
    for name, value in held.items():
        torch.testing.assert_close(value, by_torch[name], rtol=1e-6, atol=1e-7)
    for name, value in seen.validated[-1].items():
        assert torch.equal(value, held.get(name, seen.steps[-1][name])), name


def test_swa_is_the_mean_of_the_weights_at_the_ends_of_epochs(tmp_path):
    seen = Weights()
    config = tiny(model={"name": "averaged_batch_norm"}, trainer={"epochs": 4})
    run = train(
        with_callbacks(config, {"name": "swa", "start_epoch": 2}), tmp_path, extra_callbacks=[seen]
    ).run_dir
    ends = [seen.steps[2], seen.steps[5], seen.steps[8], seen.steps[11]]
    held = averages(run, "callbacks:swa")
    assert held["updates"] == 3
    by_torch = _averaged(ends[1:], get_swa_multi_avg_fn(), False)  # it cannot average the count of batches
    for name, value in held["weights"]["model"].items():
        mean = torch.stack([end[name] for end in ends[1:]]).mean(dim=0)
        torch.testing.assert_close(value, mean, rtol=1e-5, atol=1e-6)
        if "running" not in name:
            torch.testing.assert_close(value, by_torch[name], rtol=1e-6, atol=1e-7)
    # The first epoch is validated as it was trained, the last one with the mean that it has joined.
    assert_identical(seen.validated[0], ends[0])
    assert torch.equal(seen.validated[-1]["first.weight"], held["weights"]["model"]["first.weight"])


def test_an_epoch_in_which_the_run_ends_does_not_join_the_mean(tmp_path):
    config = line(dataset=POINTS, trainer={"epochs": None, "max_steps": 6})
    run = train(with_callbacks(config, {"name": "swa", "start_epoch": 1}), tmp_path).run_dir
    assert averages(run, "callbacks:swa")["updates"] == 1
    assert averages(run, "callbacks:swa")["weights"]["model"]["w"].item() == pytest.approx(0.5904, rel=1e-6)


def _averaged(states, multi_avg_fn, buffers):
    """By torch's own class."""
    model = BatchNorm()
    averaged = AveragedModel(model, multi_avg_fn=multi_avg_fn, use_buffers=buffers)
    for state in states:
        model.load_state_dict(state)
        averaged.update_parameters(model)
    return averaged.module.state_dict()


CALLBACKS = [{"name": "ema", "decay": 0.9}, {"name": "swa", "start_epoch": 1}]


@pytest.mark.parametrize("callback", CALLBACKS, ids=lambda c: c["name"])
def test_training_goes_on_with_the_weights_that_were_trained(tmp_path, callback):
    config = tiny(model={"name": "averaged_batch_norm"}, trainer={"validate_every_steps": 2})
    with_it = train(with_callbacks(config, callback), tmp_path).run_dir
    without = train(with_callbacks(config), tmp_path / "without").run_dir
    assert_identical(weights(with_it), weights(without))
    assert [r["train_loss"] for r in records(with_it, "epoch")] == [
        r["train_loss"] for r in records(without, "epoch")
    ]


@pytest.mark.parametrize("callback", CALLBACKS, ids=lambda c: c["name"])
@pytest.mark.parametrize("raised", [ZeroDivisionError, KeyboardInterrupt])
def test_the_weights_are_swapped_back_whatever_ends_the_validation(tmp_path, callback, raised):
    class Fails(Weights):
        def on_batch_end(self, trainer, phase, container):
            super().on_batch_end(trainer, phase, container)
            if phase == "val":
                raise raised

        def finalize(self, trainer, error):
            self.at_the_end = dict(trainer.parts.models["model"].state_dict())

    fails = Fails()
    config = tiny(model={"name": "averaged_batch_norm"}, trainer={"epochs": 3})
    with pytest.raises(raised):
        train(with_callbacks(config, callback), tmp_path, extra_callbacks=[fails])
    assert_identical(dict(fails.at_the_end), fails.steps[-1])
    if callback["name"] == "ema":
        assert not torch.equal(fails.validated[-1]["first.weight"], fails.steps[-1]["first.weight"])


@pytest.mark.parametrize("callback", CALLBACKS, ids=lambda c: c["name"])
def test_evaluate_computes_with_the_averages_of_the_checkpoint(tmp_path, callback):
    config = tiny(model={"name": "averaged_batch_norm"}, trainer={"epochs": 3})
    run = train(with_callbacks(config, callback), tmp_path).run_dir
    plain = train(with_callbacks(config), tmp_path / "plain").run_dir
    found = evaluate_run(run / "checkpoints" / "last.pt").metrics["val_loss"]
    assert found == records(run, "validation")[-1]["val_loss"]
    assert found != evaluate_run(plain / "checkpoints" / "last.pt").metrics["val_loss"]


@pytest.mark.parametrize("callback", CALLBACKS, ids=lambda c: c["name"])
def test_averages_of_another_model_are_refused(tmp_path, callback):
    from trainlattice_plugin_callbacks.averages import Averages

    run = train(with_callbacks(line(dataset=POINTS), callback), tmp_path).run_dir
    state = averages(run, f"callbacks:{callback['name']}")
    with pytest.raises(ValueError, match=r"no average that fits first\.weight of the model"):
        Averages({"model": BatchNorm()}, buffers=False).load_state_dict(state)


def test_averages_of_half_precision_are_kept_in_float32():
    from trainlattice_plugin_callbacks.averages import Averages

    model = nn.Linear(1, 1, bias=False).to(torch.bfloat16)
    held = Averages({"model": model}, buffers=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    held.update(get_ema_multi_avg_fn(0.999))
    with torch.no_grad():
        model.weight.fill_(2.0)
    held.update(get_ema_multi_avg_fn(0.999))
    (value,) = held.values
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(1.001, rel=1e-6)
    with held.in_place():
        assert model.weight.dtype == torch.bfloat16
    assert model.weight.item() == 2.0


class Mixed(nn.Module):
    """Parameters of three dtypes, weights under two names, a buffer that is replaced and one of half precision."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3, dtype=dtype) for dtype in (torch.float32, torch.float64))
        self.half, self.again = nn.Linear(3, 3, dtype=torch.bfloat16), self.layers[0]
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("replaced", torch.zeros(3))
        self.register_buffer("half_buffer", torch.zeros(3, dtype=torch.float16))

    @torch.no_grad()
    def move(self):
        for parameter in self.parameters():
            parameter.copy_(torch.randn(parameter.shape))
        self.norm.running_mean.normal_()
        self.replaced = torch.randn(3)
        self.half_buffer = torch.randn(3).half()


@pytest.mark.parametrize("buffers", [False, True])
@pytest.mark.parametrize("name", ["ema", "swa"])
def test_averages_are_those_of_torch_bit_for_bit(name, buffers):
    """Half precision is averaged in float32; on the way the averages are saved and loaded."""
    from trainlattice_plugin_callbacks.averages import Averages

    def average(updates):
        return get_swa_multi_avg_fn() if name == "swa" else get_ema_multi_avg_fn(min(0.9, 0.1 * updates))

    torch.manual_seed(0)
    model = Mixed()
    averages, expected = Averages({"model": model}, buffers=buffers), {}
    for updates in range(6):
        model.move()
        current = dict(model.named_parameters(remove_duplicate=False))
        current |= dict(model.named_buffers()) if buffers else {}
        for key, value in current.items():
            if value.is_floating_point():
                wide = value.detach().to(torch.promote_types(value.dtype, torch.float32), copy=True)
                if updates:
                    average(updates)([expected[key]], [wide], updates)
                expected.setdefault(key, wide)
        averages.update(average(updates))
        if updates == 3:
            state = averages.state_dict()
            averages = Averages({"model": model}, buffers=buffers)
            averages.load_state_dict(state)
        found = averages.state_dict()["weights"]["model"]
        assert_identical(dict(sorted(found.items())), dict(sorted(expected.items())))


def test_an_update_is_one_call_of_torch_for_all_parameters_which_are_not_looked_up_again():
    from trainlattice_plugin_callbacks.averages import Averages

    calls = []
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(10)])
    averages = Averages({"model": model}, buffers=True)
    for _ in range(4):
        averages.update(lambda ours, theirs, updates: calls.append((updates, len(ours), theirs)))
    assert [call[:2] for call in calls] == [(1, 20), (2, 20), (3, 20)]
    for _, _, theirs in calls:
        assert all(one is other for one, other in zip(theirs, model.parameters(), strict=True))


@pytest.mark.parametrize("step", [1, 2, 4])
@pytest.mark.parametrize("callback", CALLBACKS, ids=lambda c: c["name"])
def test_a_resume_in_the_middle_of_an_epoch_goes_on_with_the_averages(tmp_path, callback, step):
    config = tiny(model={"name": "averaged_batch_norm"}, trainer={"epochs": 3})
    config = with_callbacks({**config, "checkpoint": {"every_steps": 1}}, callback)
    straight = train(config, tmp_path / "straight").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[InterruptAtStep(step + 1)])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["trainer"]["global_step"] == step
    second = train(config, tmp_path, resume=first).run_dir
    name = f"callbacks:{callback['name']}"
    assert_identical(averages(second, name), averages(straight, name))
    assert_identical(weights(second), weights(straight))


@pytest.mark.parametrize("callback", CALLBACKS, ids=lambda c: c["name"])
@pytest.mark.parametrize("validation", [1, 2])
def test_a_run_that_was_ended_inside_a_validation_averages_each_epoch_once(tmp_path, callback, validation):
    class Terminates(Callback):
        seen = 0

        def on_phase_start(self, trainer, phase):
            self.seen += phase == "val"

        def on_batch_end(self, trainer, phase, container):
            if phase == "val" and self.seen == validation:
                signal.raise_signal(signal.SIGTERM)

    config = with_callbacks(tiny(model={"name": "averaged_batch_norm"}, trainer={"epochs": 3}), callback)
    straight = train(config, tmp_path / "straight").run_dir
    with pytest.raises(RunTerminated):
        train(config, tmp_path, extra_callbacks=[Terminates()])
    (first,) = run_dirs(tmp_path)
    second = train(config, tmp_path, resume=first).run_dir
    name = f"callbacks:{callback['name']}"
    assert_identical(averages(second, name), averages(straight, name))
    last = [records(run, "validation")[-1]["val_loss"] for run in (second, straight)]
    assert last[0] == last[1]


def test_an_average_that_does_not_fit_stops_the_resume(tmp_path):
    config = tiny(model={"name": "averaged_batch_norm"}, trainer={"epochs": 3})
    first = interrupted(with_callbacks(config, {"name": "ema"}), tmp_path, epochs=1)
    from support.runs import rewrite

    states = checkpoint(first)["states"]
    states["callbacks"]["callbacks:ema"]["weights"]["model"].pop("first.weight")
    rewrite(first, states=states)
    with pytest.raises(CheckpointError, match=r"cannot take its state: there is no average that fits first"):
        train(with_callbacks(config, {"name": "ema"}), tmp_path, resume=first)
