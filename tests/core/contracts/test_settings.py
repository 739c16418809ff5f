"""The ranges of what core itself reads."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from trainlattice.contracts.settings import (
    CORE_SECTIONS,
    DatasetSettings,
    EarlyStoppingSettings,
    ExperimentSettings,
    PluginsSettings,
    TrainerSettings,
)

NOT_POSITIVE_INTEGERS = [0, -1, 1.0, True, "1", None]
NOT_NUMBERS = [float("nan"), float("inf"), float("-inf"), "0.1", True]


def accepts(schema, key, value) -> bool:
    try:
        schema.model_validate_json(json.dumps({key: value}))
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("key", ["epochs", "validate_every", "log_every", "accumulate"])
def test_counts_of_the_trainer_are_positive_integers(key):
    assert accepts(TrainerSettings, key, 1)
    assert not any(accepts(TrainerSettings, key, value) for value in NOT_POSITIVE_INTEGERS)


def test_the_gradient_norm_is_positive_or_null():
    for value in (0.5, 1, None):
        assert accepts(TrainerSettings, "max_grad_norm", value)
    assert not any(
        accepts(TrainerSettings, "max_grad_norm", value) for value in [0, 0.0, -0.0, -1, *NOT_NUMBERS]
    )


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"])
def test_devices(device):
    assert accepts(TrainerSettings, "device", device)


@pytest.mark.parametrize(
    "device", ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU", "cpu ", "cuda:0\n", 0, None]
)
def test_other_devices_are_refused(device):
    assert not accepts(TrainerSettings, "device", device)


def test_precisions_are_a_choice():
    assert all(accepts(TrainerSettings, "precision", name) for name in ("fp32", "bf16", "fp16"))
    assert not any(accepts(TrainerSettings, "precision", name) for name in ("FP32", "16", 16, "", None))


def test_monitor_is_no_empty_text():
    assert not accepts(TrainerSettings, "monitor", "")


def test_patience_is_required_and_may_be_zero_and_min_delta_is_not_negative():
    with pytest.raises(ValidationError):
        EarlyStoppingSettings.model_validate_json("{}")
    settings = EarlyStoppingSettings.model_validate_json('{"patience": 0}')
    assert (settings.patience, settings.min_delta) == (0, 0.0)
    for value in [-1e-9, *NOT_NUMBERS]:
        with pytest.raises(ValidationError):
            EarlyStoppingSettings.model_validate_json(json.dumps({"patience": 1, "min_delta": value}))
    for value in (-1, 1.5, True, None):
        assert not accepts(EarlyStoppingSettings, "patience", value)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_seeds(seed):
    assert accepts(ExperimentSettings, "seed", seed)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.0, True, "1", None])
def test_other_seeds_are_refused(seed):
    assert not accepts(ExperimentSettings, "seed", seed)


@pytest.mark.parametrize("name", ["a", "ä 日本", "1E6", "a/b", "x" * 200, "-", "~"])
def test_names_of_experiments(name):
    assert accepts(ExperimentSettings, "name", name)


@pytest.mark.parametrize("name", ["", " ", "\t", "a\nb", "a\x00", "\x1b[31m", "x" * 201, "\u200b", None, 3])
def test_names_that_nobody_can_see_or_type_are_refused(name):
    assert not accepts(ExperimentSettings, "name", name)


def test_the_batch_size_is_positive_and_workers_are_not_negative():
    assert accepts(DatasetSettings, "batch_size", 1)
    assert accepts(DatasetSettings, "num_workers", 0)
    assert not any(accepts(DatasetSettings, "batch_size", value) for value in NOT_POSITIVE_INTEGERS)
    assert not any(accepts(DatasetSettings, "num_workers", value) for value in (-1, 1.0, True, None))


def test_plugins_are_lists_of_texts():
    assert accepts(PluginsSettings, "local", ["a.py"])
    for key in ("local", "require"):
        assert not any(accepts(PluginsSettings, key, value) for value in ("a.py", [""], [1], {"a": 1}, None))


@pytest.mark.parametrize("section", CORE_SECTIONS)
def test_every_setting_has_a_default_and_a_description(section):
    schema = CORE_SECTIONS[section]
    schema()
    for name, field in schema.model_fields.items():
        assert field.description, name
