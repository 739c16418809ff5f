"""Losses of several terms, models of several inputs and outputs: values and gradients against plain torch."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.runs import assert_same_end, checkpoint, records, run_dirs, train
from trainlattice import (
    Callback,
    Options,
    register_dataset,
    register_loss,
    register_model,
)
from trainlattice.contracts.settings import LossWeightSettings
from trainlattice.data import Splits
from trainlattice.diagnostics.errors import ConfigError, RunTerminated
from trainlattice.training.losses import scheduled

pytestmark = pytest.mark.torch


class PairsOptions(Options):
    samples: int = 10
    ignored: bool = False


class Pairs:
    """Samples with two inputs, a class and a value; every third class is -100 if some are to be ignored."""

    def __init__(self, size, ignored):
        generator = torch.Generator().manual_seed(3)
        self.left, self.right = (torch.randn(size, 3, generator=generator) for _ in range(2))
        self.kind = torch.randint(0, 4, (size,), generator=generator)
        if ignored:
            self.kind[::3] = -100
        self.value = torch.randn(size, 2, generator=generator)

    def __len__(self):
        return len(self.left)

    def __getitem__(self, index):
        return {
            "left": self.left[index],
            "right": self.right[index],
            "target/kind": self.kind[index],
            "target/value": self.value[index],
        }


@register_dataset("pairs", options=PairsOptions)
def open_pairs(options):
    data = Pairs(options.samples, options.ignored)
    return Splits(data, data)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 2)

    def forward(self, first, second):
        return {"kind": self.a(first), "value": self.b(second) + self.a(first).sum(1, keepdim=True)}


@register_model("two_heads")
def two_heads(options):
    return TwoHeads()


@register_model("as_tuple")
class AsTuple(TwoHeads):
    def forward(self, first, second):
        return tuple(super().forward(first, second).values())


@dataclass
class Heads:
    kind: torch.Tensor
    value: torch.Tensor


@register_model("as_dataclass")
class AsDataclass(TwoHeads):
    def forward(self, first, second):
        return Heads(**super().forward(first, second))


INPUTS = {"first": "input/left", "second": "input/right"}
KIND = {"name": "cross_entropy", "pred_key": "pred/kind", "target_key": "target/kind"}
VALUE = {"name": "mse", "pred_key": "pred/value", "target_key": "target/value", "weight": 0.5}


def config(*terms, model="two_heads", samples=10, ignored=False, **trainer):
    return {
        "experiment": {"seed": 1},
        "model": {"name": model, "inputs": INPUTS},
        "dataset": {"name": "pairs", "batch_size": 4, "samples": samples, "ignored": ignored},
        "loss": {"components": list(terms or (KIND, VALUE))},
        "optimizer": {"name": "sgd", "lr": 0.1, "implementation": "loop"},
        "trainer": {"epochs": 2, "log_every": 1, "device": "cpu", **trainer},
    }


class Order(Callback):
    """What each step was given, and the weights that the run began with."""

    def __init__(self):
        self.windows, self.held = [], []

    def on_run_start(self, trainer):
        self.start = {k: v.clone() for k, v in trainer.parts.models["model"].state_dict().items()}

    def on_batch_end(self, trainer, phase, container):
        if phase == "train":
            keys = ("input/left", "input/right", "target/kind", "target/value")
            self.held.append([container[key] for key in keys])

    def on_step_end(self, trainer):
        self.windows.append(self.held)
        self.held = []


def by_hand(order, *, weights=lambda step: (1.0, 0.5)):
    """Plain torch on whole windows: the losses of each step and the weights in the end."""
    model = TwoHeads()
    model.load_state_dict(order.start)
    losses = []
    for step, window in enumerate(order.windows):
        left, right, kind, value = (torch.cat(parts) for parts in zip(*window, strict=True))
        out = model(left, right)
        terms = functional.cross_entropy(out["kind"], kind), functional.mse_loss(out["value"], value)
        total = sum(weight * term for weight, term in zip(weights(step), terms, strict=True))
        model.zero_grad()
        total.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append([total.item(), *(term.item() for term in terms)])
    return losses, model.state_dict()


def assert_as_by_hand(run, order, **arguments):
    losses, weights = by_hand(order, **arguments)
    found = [[r["loss"], r["cross_entropy"], r["mse"]] for r in records(run, "batch")]
    assert found == [pytest.approx(expected, rel=1e-5) for expected in losses]
    held = checkpoint(run)["states"]["model/model"]
    for name, value in weights.items():
        torch.testing.assert_close(held[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("ignored", [False, True])
def test_terms_are_summed_each_as_a_mean_over_what_it_counts_in_the_window(tmp_path, accumulate, ignored):
    """Ten samples in micro-batches of 4, 4 and 2; ignored classes leave each another number of targets."""
    order = Order()
    run = train(config(accumulate=accumulate, ignored=ignored), tmp_path, extra_callbacks=[order]).run_dir
    assert len(order.windows) == 2 * -(-3 // accumulate)
    assert_as_by_hand(run, order)


def test_fixed_weighting_takes_the_mean_of_the_micro_batches(tmp_path):
    order = Order()
    settings = config(accumulate=2, ignored=True, accumulate_weighting="fixed", max_steps=1)
    run = train(settings, tmp_path, extra_callbacks=[order]).run_dir
    model = TwoHeads()
    model.load_state_dict(order.start)
    for left, right, kind, value in order.windows[0]:
        out = model(left, right)
        (functional.cross_entropy(out["kind"], kind) + 0.5 * functional.mse_loss(out["value"], value)).div(
            2
        ).backward()
    held = checkpoint(run)["states"]["model/model"]
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            held[name], (parameter - 0.1 * parameter.grad).detach(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(("model", "keys"), [("as_tuple", ("0", "1")), ("as_dataclass", ("kind", "value"))])
def test_outputs_of_any_form_are_addressed_by_key(tmp_path, model, keys):
    order = Order()
    terms = [{**term, "pred_key": f"pred/{key}"} for term, key in zip((KIND, VALUE), keys, strict=True)]
    run = train(config(*terms, model=model), tmp_path, extra_callbacks=[order]).run_dir
    assert_as_by_hand(run, order)


def test_a_validation_weighs_each_term_by_what_it_counts_itself(tmp_path):
    """Ten samples in batches of 4, 4, 2 whose classes are partly ignored: the mean is over all that count."""
    order = Order()
    run = train(config(ignored=True, epochs=1), tmp_path, extra_callbacks=[order]).run_dir
    model, data = TwoHeads(), Pairs(10, ignored=True)
    model.load_state_dict(checkpoint(run)["states"]["model/model"])
    with torch.no_grad():
        out = model(data.left, data.right)
        kind, value = (
            functional.cross_entropy(out["kind"], data.kind),
            functional.mse_loss(out["value"], data.value),
        )
    (found,) = records(run, "validation")
    assert found["val_cross_entropy"] == pytest.approx(kind.item(), rel=1e-6)
    assert found["val_mse"] == pytest.approx(value.item(), rel=1e-6)
    assert found["val_loss"] == pytest.approx((kind + 0.5 * value).item(), rel=1e-6)
    counted = data.kind != -100
    right = (out["kind"].argmax(1) == data.kind)[counted].double().mean().item()
    assert found["val_accuracy"] == pytest.approx(right, rel=1e-12)


def test_a_weight_follows_the_steps(tmp_path):
    order = Order()
    weight = {"schedule": "linear", "start": 0.0, "end": 1.0, "steps": 4}
    run = train(config(KIND, {**VALUE, "weight": weight}), tmp_path, extra_callbacks=[order]).run_dir
    assert_as_by_hand(run, order, weights=lambda step: (1.0, min(step / 4, 1.0)))


@pytest.mark.parametrize(
    ("schedule", "values"),
    [("linear", [2.0, 2.0, 1.0, 0.0, 0.0]), ("cosine", [2.0, 2.0, 1.0, 0.0, 0.0])],
)
def test_schedules_of_a_weight(schedule, values):
    weight = LossWeightSettings(schedule=schedule, start=2.0, end=0.0, steps=4, begin=10)
    assert [scheduled(weight, step) for step in (0, 10, 12, 14, 99)] == pytest.approx(values)
    quarter = 1.5 if schedule == "linear" else 2.0 - 2.0 * (1 - 0.5**0.5) / 2
    assert scheduled(weight, 11) == pytest.approx(quarter)


def test_a_run_with_several_terms_resumes_inside_an_epoch(tmp_path):
    class Stops(Callback):
        def on_step_end(self, trainer):
            import signal

            if trainer.state.global_step == 4:
                signal.raise_signal(signal.SIGTERM)

    settings = config(ignored=True, epochs=3, accumulate=2)
    whole = train(settings, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(RunTerminated):
        train(settings, tmp_path, extra_callbacks=[Stops()])
    (first,) = run_dirs(tmp_path)
    assert_same_end(whole, train(settings, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir)


def test_a_best_checkpoint_may_be_that_of_one_term(tmp_path):
    result = train(config(monitor="val_mse"), tmp_path)
    assert result.best_metric == min(r["val_mse"] for r in records(result.run_dir, "validation"))


# --- further arguments, auxiliary losses, loss_args


@register_loss("masked_squares")
class Masked:
    def __call__(self, pred, target, mask, scale=1.0):
        return ((pred - target).square().mean(1) * (mask > 0)[:, 0]).mean() * scale


@register_model("offering")
class Offering(TwoHeads):
    """Offers a scale to losses and a loss of its own."""

    def __init__(self):
        super().__init__()
        self.loss_args = {}
        self.b = Coded()

    def forward(self, first, second):
        self.loss_args = {"scale": first.mean().exp()}
        return super().forward(first, second)


class Coded(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)

    def forward(self, x):
        self.commitment = super().forward(x)
        return self.commitment

    def auxiliary_loss(self):
        return self.commitment.square().mean()


def test_context_and_what_a_model_offers_reach_a_loss_and_submodules_add_theirs(tmp_path):
    term = {**VALUE, "name": "masked_squares", "context": {"mask": "input/left", "scale": "model/scale"}}
    order = Order()
    run = train(config(term, model="offering", max_steps=1), tmp_path, extra_callbacks=[order]).run_dir
    model = Offering()
    model.load_state_dict(order.start)
    ((left, right, _, value),) = order.windows[0]
    out = model(left, right)
    own = Masked()(out["value"], value, left, model.loss_args["scale"])
    auxiliary = model.b.auxiliary_loss()
    (found,) = records(run, "batch")
    assert found["masked_squares"] == pytest.approx(own.item(), rel=1e-6)
    assert found["loss"] == pytest.approx((0.5 * own + auxiliary).item(), rel=1e-6)
    assert found["b"] == pytest.approx(auxiliary.item(), rel=1e-6)


# --- mistakes


def refused(tmp_path, settings):
    with pytest.raises(ConfigError) as raised:
        train(settings, tmp_path)
    assert run_dirs(tmp_path) == []
    return str(raised.value)


def test_a_key_that_does_not_exist_is_named_with_who_asked_and_what_exists(tmp_path):
    text = refused(tmp_path, config(KIND, {**VALUE, "pred_key": "pred/values"}))
    assert "the loss 'mse' needs the key 'pred/values'" in text
    assert "'pred/value'" in text
    settings = config()
    settings["model"]["inputs"] = {"first": "input/links", "second": "input/right"}
    text = refused(tmp_path, settings)
    assert "the model needs the key 'input/links'" in text
    assert "'input/left'" in text


def test_two_terms_of_one_name_need_another(tmp_path):
    text = refused(tmp_path, config(KIND, VALUE, {**VALUE, "weight": 1.0}))
    assert "loss.components.2.as" in text
    assert "'mse' is taken" in text
    again = {**VALUE, "as": "again"}
    (record, *_) = records(train(config(KIND, VALUE, again), tmp_path).run_dir, "batch")
    assert record["again"] == record["mse"]


def test_a_monitor_that_no_term_has_is_refused_with_those_that_there_are(tmp_path):
    assert "metrics: val_loss, val_accuracy, val_cross_entropy, val_mse" in refused(
        tmp_path, config(monitor="val_mae")
    )


def test_nothing_stands_beside_components(tmp_path):
    settings = config()
    settings["loss"]["weight"] = 2.0
    assert "no other key beside it" in refused(tmp_path, settings)
    settings["loss"] = {"components": []}
    assert "expected a list of loss components" in refused(tmp_path, settings)


def test_an_output_that_is_no_tensor_names_the_keys_that_a_loss_can_take(tmp_path):
    settings = config()
    settings["loss"] = {"name": "mse", "target_key": "target/value"}
    text = refused(tmp_path, settings)
    assert "the model returned a dict" in text
    assert "pred/kind, pred/value" in text


@register_loss("masked_mean")
class MaskedMean:
    """The mean over what the mask keeps."""

    def __call__(self, pred, target, *, mask):
        kept = (mask > 0).expand_as(pred).to(pred.dtype)
        return ((pred - target).square() * kept).sum() / kept.sum()

    def num_terms(self, target, *, mask=None):
        return target.numel() if mask is None else (mask > 0).expand_as(target).sum()


@pytest.mark.parametrize("accumulate", [1, 3])
def test_what_a_loss_counts_may_depend_on_its_context(tmp_path, accumulate):
    """Masks keep another share of each micro-batch; the mean is over all that the window keeps."""
    term = {**VALUE, "name": "masked_mean", "context": {"mask": "input/mask"}, "weight": 1.0}
    settings = config(term, accumulate=accumulate, epochs=1)
    settings["dataset"]["name"] = "masked_pairs"
    order = Order()
    run = train(settings, tmp_path, extra_callbacks=[order]).run_dir
    model, data = TwoHeads(), MaskedPairs(10, ignored=False)
    model.load_state_dict(order.start)
    mask_of = {tuple(row.tolist()): mask for row, mask in zip(data.left, data.mask, strict=True)}
    losses = []
    for window in order.windows:
        left, right, _, value = (torch.cat(parts) for parts in zip(*window, strict=True))
        mask = torch.stack([mask_of[tuple(row.tolist())] for row in left])
        loss = MaskedMean()(model(left, right)["value"], value, mask=mask)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append(loss.item())
    assert [r["loss"] for r in records(run, "batch")] == pytest.approx(losses, rel=1e-5)


class MaskedPairs(Pairs):
    def __init__(self, size, ignored):
        super().__init__(size, ignored)
        self.mask = (torch.arange(size) % 3 > 0).float()[:, None]

    def __getitem__(self, index):
        return {**super().__getitem__(index), "mask": self.mask[index]}


@register_dataset("masked_pairs", options=PairsOptions)
def open_masked_pairs(options):
    data = MaskedPairs(options.samples, options.ignored)
    return Splits(data, data)


def test_an_auxiliary_loss_of_the_name_of_a_term_is_refused(tmp_path):
    text = refused(tmp_path, config(KIND, {**VALUE, "as": "b"}, model="offering"))
    assert "the submodule 'b' has an auxiliary_loss" in text
    assert "'b' is a loss or metric of this run" in text


def test_where_no_target_counts_an_auxiliary_loss_is_trained_alone(tmp_path):
    """A class in every third sample is ignored, and a batch is one sample."""
    settings = config({**KIND, "ignore_index": -100}, model="offering", ignored=True, epochs=1)
    settings["dataset"]["batch_size"] = 1
    found = records(train(settings, tmp_path).run_dir, "batch")
    assert len(found) == 10
    alone = [record for record in found if "cross_entropy" not in record]
    assert len(alone) == 4
    assert all(record["loss"] == record["b"] for record in alone)
