"""What may change between a checkpoint and the configuration that resumes it."""

from __future__ import annotations

import copy

import pytest

from support.checking import BASE, resolved, write
from trainlattice.config.compatibility import changes


@pytest.fixture
def saved(tmp_path):
    return resolved(write(tmp_path, BASE + "trainer: {early_stopping: {patience: 3}}\n"))


def changed(saved, section, key, value):
    given = copy.deepcopy(saved)
    given[section][key] = value
    return changes(saved, given)


def test_the_same_configuration_has_no_changes(saved):
    assert changes(saved, copy.deepcopy(saved)) == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("experiment", "name", "other"),
        ("experiment", "runs_dir", "/elsewhere"),
        ("trainer", "device", "cpu"),
        ("trainer", "log_every", 3),
        ("trainer", "epochs", 9),
        ("trainer", "early_stopping", None),
        ("trainer", "early_stopping", {"patience": 4, "min_delta": 0.0}),
        ("dataset", "num_workers", 2),
        ("plugins", "local", ["/a.py"]),
    ],
)
def test_what_does_not_change_a_step_may_change(saved, section, key, value):
    (change,) = changed(saved, section, key, value)
    assert change.path.startswith(f"{section}.{key}")
    assert change.allowed


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("experiment", "seed", 1),
        ("trainer", "accumulate", 2),
        ("trainer", "precision", "bf16"),
        ("trainer", "max_grad_norm", 1.0),
        ("trainer", "validate_every", 2),
        ("trainer", "monitor", "val_accuracy"),
        ("optimizer", "lr", 0.5),
        ("optimizer", "name", "optimizers:adam"),
        ("model", "hidden_dims", [8, 8]),
        ("model", "dropout", 0.2),
        ("dataset", "batch_size", 4),
        ("dataset", "samples", 3),
        ("loss", "label_smoothing", 0.1),
    ],
)
def test_what_changes_a_step_may_not(saved, section, key, value):
    (change,) = changed(saved, section, key, value)
    assert (change.path, change.saved, change.given) == (f"{section}.{key}", saved[section][key], value)
    assert not change.allowed
    assert str(change) == f"{section}.{key}: {saved[section][key]!r} in the checkpoint, {value!r} now"


def test_callbacks_may_change(saved):
    (change,) = changes(saved, {**saved, "callbacks": []})
    assert (change.path, change.allowed) == ("callbacks", True)


def test_a_section_that_is_new_or_gone_is_a_change(saved):
    scheduler = {"name": "schedulers:step_decay", "step_size": 3, "gamma": 0.1}
    (new,) = changes(saved, {**saved, "scheduler": scheduler})
    assert (new.path, new.saved, new.given, new.allowed) == ("scheduler", None, scheduler, False)
    (gone,) = changes({**saved, "scheduler": scheduler}, saved)
    assert (gone.path, gone.saved, gone.given, gone.allowed) == ("scheduler", scheduler, None, False)


def test_equal_values_of_another_type_are_a_change(saved):
    (change,) = changed(saved, "model", "dropout", False if saved["model"]["dropout"] == 0 else "0.1")
    assert not change.allowed
    (change,) = changed({**saved, "model": {"a": 1}}, "model", "a", True)
    assert change.path == "model.a"


def test_an_option_named_like_a_runtime_setting_elsewhere_is_no_runtime_setting(saved):
    (change,) = changes({**saved, "model": {"epochs": 1}}, {**saved, "model": {"epochs": 2}})
    assert not change.allowed
