"""From a Trainer into a checkpoint and back."""

import pytest
import torch

from support.by_hand import line
from support.runs import checkpoint, interrupted, rewrite, tiny, train
from trainlattice.diagnostics.errors import CheckpointError

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
