"""What a component name means, or why it means nothing."""

from __future__ import annotations

import pytest

from support.checking import BASE, mistake, places, write
from support.odd import odd_registry


def named(tmp_path, name: str):
    return mistake(write(tmp_path, BASE.replace("name: mlp", f"name: {name}")), registry=odd_registry())


def test_a_misspelt_name_shows_its_nearest_and_what_is_available(tmp_path):
    found = named(tmp_path, "mpl")
    assert (found.code, places([found])) == ("unknown-component", [("c.yaml:2:9", "model.name")])
    assert found.suggestion == "did you mean 'mlp'?"
    (available,) = (note for note in found.notes if note.startswith("available: "))
    assert "cnn late_fusion mlp multi_head unet (models)" in available
    assert "demanding" in available
    assert any("python -m pip install" in note for note in found.notes)


def test_a_name_of_another_kind_is_recognised(tmp_path):
    assert "'adamw' is an optimizer, not a model" in named(tmp_path, "adamw").notes


def test_a_name_of_another_plugin_is_suggested_from_its_own(tmp_path):
    found = named(tmp_path, "models:mpl")
    assert found.message == "no model is named 'models:mpl'"
    assert found.suggestion == "did you mean 'mlp'?"


def test_a_plugin_that_is_not_installed_is_named_with_the_line_that_installs_it(tmp_path):
    found = named(tmp_path, "vision_zoo:resnet")
    assert found.code == "unknown-plugin"
    assert found.message == "model 'vision_zoo:resnet': the plugin 'vision_zoo' is not installed"
    assert any(note.endswith("python -m pip install trainlattice-plugin-vision-zoo") for note in found.notes)


def test_a_misspelt_plugin_is_suggested(tmp_path):
    assert named(tmp_path, "modles:mlp").suggestion == "did you mean 'models:mlp'?"


def test_the_name_of_a_plugin_is_no_component(tmp_path):
    found = named(tmp_path, "trainlattice-plugin-models")
    assert (
        "'trainlattice-plugin-models' is a plugin; its models: autoencoder, cnn, late_fusion, mlp, multi_head, unet"
        in (found.notes)
    )


@pytest.mark.parametrize("name", ["os.system", "torch.nn.Linear", "my_module:MyModel", "./mlp.py"])
def test_names_are_no_import_paths(tmp_path, name):
    assert named(tmp_path, name).code in ("unknown-component", "unknown-plugin")
