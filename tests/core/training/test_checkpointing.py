"""From a Trainer into a checkpoint and back."""

import importlib
import sys

import pytest
import torch

from support.by_hand import line
from support.distributions import fake_plugin
from support.runs import checkpoint, interrupted, rewrite, tiny, train
from trainlattice import Callback, Options, register
from trainlattice.contracts.records import ModeContract
from trainlattice.diagnostics.errors import CheckpointError, CheckpointWriteError
from trainlattice.training.supervised import Supervised

pytestmark = pytest.mark.torch


def test_a_checkpoint_holds_everything_by_name(tmp_path):
    run = train(tiny(scheduler={"name": "warmup_cosine"}), tmp_path).run_dir
    held = checkpoint(run)
    names = ["model/model", "loss", "update/optimizer", "mode", "callbacks", "progress", "data", "metrics"]
    assert list(held["states"]) == names
    assert list(held["states"]["update/optimizer"]) == ["implementation", "optimizer", "scheduler", "scaler"]
    assert held["states"]["update/optimizer"]["implementation"] == "fused"
    assert held["trainer"]["epoch"] == 2
    assert held["trainer"]["global_step"] == 6
    assert (held["kind"], held["budget"], held["order"]) == ("resume", 6, 2)
    assert held["config"]["model"]["name"] == "models:mlp"
    assert {"python", "torch", "numpy"} <= set(held["rng"])
    assert [record["section"] for record in held["components"]][:3] == ["mode", "model", "dataset"]


def test_weights_have_the_keys_of_the_plain_module(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    assert list(checkpoint(run)["states"]["model/model"]) == [
        "layers.1.weight",
        "layers.1.bias",
        "layers.4.weight",
        "layers.4.bias",
    ]


def test_another_version_of_the_sample_order_is_refused(tmp_path):
    run = interrupted(line(trainer={"epochs": 2}), tmp_path, epochs=1)
    rewrite(run, order=1)
    with pytest.raises(CheckpointError, match=r"version 1 of the sample order.* has 2"):
        train(line(trainer={"epochs": 2}), tmp_path, resume=run)


def test_a_state_that_does_not_fit_the_model_is_refused_and_the_checkpoint_named(tmp_path):
    run = interrupted(line(trainer={"epochs": 2}), tmp_path, epochs=1)
    states = checkpoint(run)["states"]
    states["model/model"] = {"w": torch.zeros(3)}
    rewrite(run, states=states)
    with pytest.raises(CheckpointError, match=r"(?s)last\.pt does not fit this run: .*size mismatch for w"):
        train(line(trainer={"epochs": 2}), tmp_path, resume=run)


def test_a_state_that_the_checkpoint_lacks_is_named(tmp_path):
    run = interrupted(line(trainer={"epochs": 2}), tmp_path, epochs=1)
    states = checkpoint(run)["states"]
    del states["update/optimizer"]
    rewrite(run, states=states)
    with pytest.raises(CheckpointError, match="it holds no state for update/optimizer"):
        train(line(trainer={"epochs": 2}), tmp_path, resume=run)


# --- what could not be stored


class KeepingOptions(Options):
    def contract(self):
        return ModeContract(
            required=("model", "dataset"), optional=("optimizer", "loss", "scheduler", "keeper")
        )


@register("mode", "keeping", options=KeepingOptions)
class Keeping(Supervised):
    """A mode whose state is what its class holds."""

    held = None

    def state_dict(self):
        return {"held": self.held}

    def load_state_dict(self, state):
        self.held = state["held"]


KEEPER = """
from trainlattice.plugin import Component, Kind, hookimpl


class Keeper:
    held = None

    def __init__(self, **_):
        pass

    def state_dict(self):
        return {"held": self.held}

    def load_state_dict(self, state):
        self.held = state["held"]


@hookimpl
def trainlattice_kinds():
    return [Kind("keeper", "keeper", summary="what keeps something")]


@hookimpl
def trainlattice_components():
    return [Component("keeper", "shelf", "trainlattice_plugin_keepers.plugin:Keeper")]
"""


@pytest.fixture
def keeper(tmp_path, monkeypatch):
    """The class of a component of a kind of its own."""
    site = tmp_path / "site"
    site.mkdir()
    fake_plugin(site, "keepers", KEEPER)
    monkeypatch.syspath_prepend(site)
    importlib.invalidate_caches()
    yield importlib.import_module("trainlattice_plugin_keepers.plugin").Keeper
    for name in [name for name in sys.modules if name.startswith("trainlattice_plugin_keepers")]:
        del sys.modules[name]


def keeping():
    return {**line(trainer={"epochs": 2}), "mode": {"name": "keeping"}, "keeper": {"name": "shelf"}}


class Steps(Callback):
    taken = 0

    def on_step_end(self, trainer):
        self.taken += 1


def test_the_state_of_a_mode_and_of_a_component_of_another_kind_is_saved_and_loaded(
    tmp_path, monkeypatch, keeper
):
    monkeypatch.setattr(Keeping, "held", [1, 2])
    monkeypatch.setattr(keeper, "held", torch.ones(2))
    states = checkpoint(train(keeping(), tmp_path).run_dir)["states"]
    assert states["mode"] == {"held": [1, 2]}
    assert states["other/keeper"]["held"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("what", ["mode", "other/keeper"])
def test_a_component_whose_state_nobody_could_load_costs_no_training(tmp_path, monkeypatch, keeper, what):
    monkeypatch.setattr(Keeping if what == "mode" else keeper, "held", {"path": tmp_path})
    steps = Steps()
    with pytest.raises(
        CheckpointWriteError, match=f"the state of {what} cannot be saved: it would hold pathlib"
    ):
        train(keeping(), tmp_path, extra_callbacks=[steps])
    assert steps.taken == 0


def test_a_callback_may_make_in_on_run_start_what_its_state_is_made_of(tmp_path):
    class Late(Callback):
        def on_run_start(self, trainer):
            self.count = 0

        def on_step_end(self, trainer):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

    run = train(line(trainer={"epochs": 2}), tmp_path, extra_callbacks=[Late()]).run_dir
    assert checkpoint(run)["states"]["callbacks"]["extra#1"] == {"count": 2}
