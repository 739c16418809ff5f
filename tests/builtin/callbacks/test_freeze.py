"""freeze: bit-equal weights until the step, then trained."""

import pytest
import torch
from torch import nn

from support.runs import InterruptAtStep, assert_identical, checkpoint, run_dirs, tiny, train, weights
from trainlattice import Callback, register_model
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x):
        return self.head(self.backbone(x))


@register_model("frozen_backbone")
def frozen_backbone(options):
    return Backbone()


class States(Callback):
    """The model when the run begins and after each step, and whose gradients there are."""

    def __init__(self):
        self.states, self.gradients = [], []

    def on_run_start(self, trainer):
        self.keep(trainer)

    def on_step_end(self, trainer):
        self.keep(trainer)
        model = trainer.parts.models["model"]
        self.gradients.append({name for name, p in model.named_parameters() if p.grad is not None})

    def keep(self, trainer):
        model = trainer.parts.models["model"]
        self.states.append({name: value.clone() for name, value in model.state_dict().items()})


OPTIMIZERS = [
    {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    {"name": "adamw", "lr": 0.1, "weight_decay": 0.5},
    {"name": "adam", "lr": 0.1, "implementation": "loop"},
]


def frozen(optimizer=OPTIMIZERS[0], trainer=None, **options):
    config = tiny(
        model={"name": "frozen_backbone"}, optimizer=optimizer, trainer={"epochs": 2, **(trainer or {})}
    )
    return {**config, "callbacks": [{"name": "freeze", "params": ["backbone.*"], **options}]}


def same(one, other, prefix):
    return all(torch.equal(one[name], other[name]) for name in one if name.startswith(prefix))


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o["name"])
def test_neither_weight_decay_nor_momentum_moves_what_is_frozen(tmp_path, optimizer):
    seen = States()
    run = train(frozen(optimizer), tmp_path, extra_callbacks=[seen]).run_dir
    assert same(weights(run), seen.states[0], "backbone.")
    assert not torch.equal(weights(run)["head.0.weight"], seen.states[0]["head.0.weight"])
    assert all(all(name.startswith("head.") for name in names) for names in seen.gradients)
    assert int(weights(run)["head.1.num_batches_tracked"]) == 6


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o["name"])
def test_from_the_step_on_it_is_trained(tmp_path, optimizer):
    """Two steps without, in the middle of the first epoch of three."""
    seen = States()
    train(frozen(optimizer, until_step=2), tmp_path, extra_callbacks=[seen])
    assert same(seen.states[2], seen.states[0], "backbone.")
    assert not torch.equal(seen.states[3]["backbone.0.weight"], seen.states[0]["backbone.0.weight"])
    assert int(seen.states[3]["backbone.1.num_batches_tracked"]) == 1


def test_its_statistics_may_go_on(tmp_path):
    seen = States()
    train(frozen(freeze_statistics=False), tmp_path, extra_callbacks=[seen])
    assert int(seen.states[-1]["backbone.1.num_batches_tracked"]) == 6
    assert torch.equal(seen.states[-1]["backbone.1.weight"], seen.states[0]["backbone.1.weight"])


def test_a_validation_leaves_frozen_statistics_as_they_are(tmp_path):
    seen = States()
    train(frozen(trainer={"validate_every_steps": 1}), tmp_path, extra_callbacks=[seen])
    assert same(seen.states[-1], seen.states[0], "backbone.")


@pytest.mark.parametrize("step", [1, 3, 4])
def test_a_resumed_run_thaws_at_the_same_step(tmp_path, step):
    config = {**frozen(OPTIMIZERS[1], until_step=4, trainer={"epochs": 3}), "checkpoint": {"every_steps": 1}}
    straight = train(config, tmp_path / "straight").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[InterruptAtStep(step + 1)])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["trainer"]["global_step"] == step
    second = train(config, tmp_path, resume=first).run_dir
    for part in ("model/model", "update/optimizer"):
        assert_identical(checkpoint(second)["states"][part], checkpoint(straight)["states"][part])


@pytest.mark.parametrize(
    ("params", "message", "path"),
    [
        (["backbone.*", "backbon.*"], "no parameter is named 'backbon", "callbacks.0.params.1"),
        (["*"], "nothing would be left for the optimizer to train", "callbacks.0.params"),
        (["embedding"], "no parameter is named 'embedding'", "callbacks.0.params.0"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused_before_a_run_exists(tmp_path, params, message, path):
    with pytest.raises(ConfigError, match=message) as raised:
        train(frozen(params=params), tmp_path)
    assert [found.path for found in raised.value.diagnostics] == [path]
    assert not run_dirs(tmp_path)


def test_patterns_are_those_of_optimizer_groups(tmp_path):
    seen = States()
    train(frozen(params=["norm", "head.0.bias"]), tmp_path, extra_callbacks=[seen])
    frozen_names = {"backbone.1.weight", "backbone.1.bias", "head.1.weight", "head.1.bias", "head.0.bias"}
    assert {name for name, _ in Backbone().named_parameters()} - seen.gradients[0] == frozen_names


# --- several of them


def several(*callbacks, **trainer):
    return {**frozen(trainer=trainer), "callbacks": [{"name": "freeze", **options} for options in callbacks]}


FOR_GOOD = {"params": ["backbone.*"]}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "other", [{"params": ["backbone.0.bias"], "until_step": 2}, {"params": ["norm"], "until_step": 2}]
)
def test_what_one_freezes_for_good_stays_so_when_another_ends(tmp_path, other, first):
    """That of a normalisation layer is a matter of its statistics too."""
    seen = States()
    callbacks = (other, FOR_GOOD) if first else (FOR_GOOD, other)
    train(several(*callbacks), tmp_path, extra_callbacks=[seen])
    assert len(seen.states) == 7
    assert same(seen.states[-1], seen.states[0], "backbone.")
    head = [name for name in seen.states[0] if name.startswith("head.1.")]
    if other["params"] == ["norm"]:
        assert same(seen.states[2], seen.states[0], "head.1.")
    assert not any(torch.equal(seen.states[-1][name], seen.states[0][name]) for name in head)


def test_the_last_one_to_let_go_has_it_trained(tmp_path):
    seen = States()
    one, other = ({**FOR_GOOD, "until_step": step} for step in (2, 4))
    train(several(one, other), tmp_path, extra_callbacks=[seen])
    assert same(seen.states[4], seen.states[0], "backbone.")
    assert not torch.equal(seen.states[5]["backbone.0.weight"], seen.states[4]["backbone.0.weight"])
    assert int(seen.states[5]["backbone.1.num_batches_tracked"]) == 1


@pytest.mark.parametrize("step", [1, 2, 3, 5])
def test_a_resumed_run_goes_on_with_those_that_still_hold(tmp_path, step):
    one, other = ({**FOR_GOOD, "until_step": until} for until in (2, 4))
    config = {**several(one, other, epochs=3), "checkpoint": {"every_steps": 1}}
    straight = train(config, tmp_path / "straight").run_dir
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, extra_callbacks=[InterruptAtStep(step + 1)])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["trainer"]["global_step"] == step
    second = train(config, tmp_path, resume=first).run_dir
    for part in ("model/model", "update/optimizer"):
        assert_identical(checkpoint(second)["states"][part], checkpoint(straight)["states"][part])


@pytest.mark.parametrize("until_step", [None, 2])
def test_together_they_must_leave_something_to_train(tmp_path, until_step):
    config = several(FOR_GOOD, {"params": ["head.*"], "until_step": until_step})
    message = "nothing would be left for the optimizer to train, with what others freeze"
    with pytest.raises(ConfigError, match=message) as raised:
        train(config, tmp_path)
    assert [found.path for found in raised.value.diagnostics] == ["callbacks.1.params"]
    assert not run_dirs(tmp_path)
    train(several(FOR_GOOD, {"params": ["head.0.*"]}), tmp_path)
