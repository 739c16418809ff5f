"""From a file to a resolved configuration: all mistakes at once, every default written out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.checking import BASE, mistake, mistakes, places, resolved, write
from support.odd import odd_registry
from trainlattice.config.resolve import resolve_file, resolve_mapping
from trainlattice.diagnostics.errors import ConfigError

MISTAKEN = """\
optimiser:
  lr: 0.1
model:
  name: mpl
  input_dim: "4"
dataset:
  name: synthetic
  batch_size: 8.5
  samples: true
  inputshape: [4]
optimizer:
  learning_rate: 1e-3
  betas: [0.9, 2]
trainer:
  epochs: true
  log-every: 3
  precision: bf61
"""


def test_every_mistake_is_shown_at_once_in_the_order_of_the_file(tmp_path):
    found = mistakes(write(tmp_path, MISTAKEN))
    assert [(*place, d.code, d.suggestion) for place, d in zip(places(found), found, strict=True)] == [
        ("c.yaml:1:1", "optimiser", "unknown-section", "did you mean 'optimizer'?"),
        ("c.yaml:4:9", "model.name", "unknown-component", "did you mean 'mlp'?"),
        ("c.yaml:8:15", "dataset.batch_size", "wrong-type", None),
        ("c.yaml:9:12", "dataset.samples", "wrong-type", None),
        ("c.yaml:10:3", "dataset.inputshape", "unknown-option", "did you mean 'input_shape'?"),
        ("c.yaml:12:3", "optimizer.learning_rate", "unknown-option", "did you mean 'lr'?"),
        ("c.yaml:13:16", "optimizer.betas.1", "invalid-value", None),
        ("c.yaml:15:11", "trainer.epochs", "wrong-type", None),
        ("c.yaml:16:3", "trainer.log-every", "unknown-option", "did you mean 'log_every'?"),
        ("c.yaml:17:14", "trainer.precision", "invalid-value", "did you mean 'bf16'?"),
    ]


def test_what_depends_on_a_mistake_waits_until_it_is_repaired(tmp_path):
    text = BASE.replace("input_dim: 4", "input_dim: 5")
    wrong_name = write(tmp_path, text.replace("mlp", "mpl"))
    assert [found.code for found in mistakes(wrong_name)] == ["unknown-component"]
    wrong_type = write(tmp_path, text.replace("[8]", "[x]"))
    assert [found.code for found in mistakes(wrong_type)] == ["wrong-type"]
    assert [found.code for found in mistakes(write(tmp_path, text))] == ["contract"]


def test_a_contract_is_compared_although_another_section_is_wrong(tmp_path):
    path = write(tmp_path, BASE.replace("input_dim: 4", "input_dim: 5") + "trainer: {epochs: x}\n")
    assert places(mistakes(path)) == [("c.yaml:3:14", "model.input_dim"), ("c.yaml:11:19", "trainer.epochs")]


def test_a_duplicate_key_does_not_hide_the_other_mistakes(tmp_path):
    path = write(tmp_path, BASE + "trainer:\n  epochs: 3\n  epochs: 300\n  log_every: x\n")
    assert places(mistakes(path)) == [("c.yaml:13:3", "epochs"), ("c.yaml:14:14", "trainer.log_every")]


def test_the_excerpt_shows_line_caret_and_suggestion(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = mistake(write(tmp_path, BASE + "trainer:\n  epochs: 2\n  acumulate: 2\n"))
    assert found.render().splitlines()[:5] == [
        "error[unknown-option]: unknown option 'acumulate' for the section 'trainer'",
        "  --> c.yaml:13:3   trainer.acumulate",
        "  12 |   epochs: 2",
        "  13 |   acumulate: 2",
        "     |   ^^^^^^^^^ did you mean 'accumulate'?",
    ]


def test_the_caret_is_right_after_wide_characters(tmp_path):
    text = BASE.replace("name: mlp", "name: mlp # 模型") + "trainer: {device: 中央处理器, epochs: 0}\n"
    device, epochs = mistakes(write(tmp_path, text))
    assert device.render().splitlines()[-1] == "     | " + " " * 18 + "^" * 10
    assert epochs.render().splitlines()[-1] == "     | " + " " * 38 + "^"


# --- sections ----------------------------------------------------------------------------------------


def test_defaults_are_written_out_and_names_are_qualified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolved(write(tmp_path, BASE))
    cwd = str(tmp_path)
    assert config == {
        "experiment": {"name": "experiment", "seed": 42, "runs_dir": os.path.join(cwd, "runs")},
        "mode": {"name": "core:supervised"},
        "model": {
            "name": "models:mlp", "inputs": None, "input_dim": 4, "hidden_dims": [8], "num_classes": 3,
            "dropout": 0.1,
        },
        "dataset": {
            "name": "datasets:synthetic", "batch_size": 8, "num_workers": 0, "start_method": None,
            "drop_last": False, "samples": 256, "val_samples": 64, "input_shape": [4], "num_classes": 3,
        },
        "loss": {
            "name": "losses:cross_entropy", "weight": 1.0, "pred_key": "pred", "target_key": "target",
            "context": {}, "as": None, "class_weights": None, "label_smoothing": 0.0, "ignore_index": -100,
            "reduction": "mean",
        },
        "optimizer": {
            "name": "optimizers:adamw", "groups": None, "implementation": "auto", "lr": 0.001,
            "betas": [0.9, 0.999], "eps": 1e-8,
            "weight_decay": 0.01, "amsgrad": False,
        },
        "postprocess": [],
        "metrics": [],
        "trackers": [],
        "callbacks": [{"name": "callbacks:progress", "refresh_per_second": 8}],
        "trainer": {
            "epochs": 1, "max_steps": None, "max_samples": None, "max_wall_time_sec": None,
            "overfit_batches": None, "device": "auto", "validate_every": 1, "validate_every_steps": None,
            "log_every": 10, "monitor": "val_loss", "monitor_mode": "auto", "max_grad_norm": None,
            "accumulate": 1, "accumulate_weighting": "samples", "precision": "fp32", "early_stopping": None,
            "nonfinite": "stop", "nonfinite_budget": 10, "compile": None,
        },
        "checkpoint": {
            "every_epochs": 1, "every_steps": None, "every_seconds": None, "keep_last": 1,
            "keep_every_epochs": None, "keep_best": 1, "async": False,
        },
        "plugins": {"local": [], "require": []},
    }  # fmt: skip


@pytest.mark.parametrize("section", ["experiment", "trainer", "plugins", "loss", "optimizer", "mode"])
def test_an_empty_section_holds_its_defaults(tmp_path, section):
    assert resolved(write(tmp_path, BASE + f"{section}:\n")) == resolved(write(tmp_path, BASE))


@pytest.mark.parametrize("text", ["mode: supervised", "mode: core:supervised", "mode: {name: supervised}"])
def test_a_component_may_be_its_name_alone(tmp_path, text):
    assert resolved(write(tmp_path, BASE + text + "\n"))["mode"] == {"name": "core:supervised"}


def test_a_name_may_say_its_plugin_or_its_distribution(tmp_path):
    for name in ("models:mlp", "trainlattice-plugin-models:mlp", "Trainlattice_Plugin.Models:mlp"):
        path = write(tmp_path, BASE.replace("name: mlp", f"name: {name}"))
        assert resolved(path)["model"]["name"] == "models:mlp"


@pytest.mark.parametrize("section", ["model", "dataset"])
@pytest.mark.parametrize("written", [False, True], ids=["missing", "empty"])
def test_a_required_section_that_is_missing_or_empty_is_named(tmp_path, section, written):
    other = "dataset: data\n" if section == "model" else "model: any\n"
    path = write(tmp_path, other + (f"{section}:\n" if written else ""))
    found = mistake(path, registry=odd_registry())
    word = "empty" if written else "missing"
    assert (found.code, found.message) == ("missing-section", f"the section {section!r} is {word}")
    assert places([found]) == [("c.yaml:2:1" if written else "c.yaml:1:1", section)]


def test_a_section_needs_a_name_where_there_is_no_default(tmp_path):
    found = mistake(write(tmp_path, BASE + "scheduler:\n  step_size: 3\n"))
    assert places([found]) == [("c.yaml:11:1", "scheduler.name")]
    assert found.message == "the section 'scheduler' needs a name: which scheduler?"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("trainer: fast\n", ("c.yaml:11:10", "trainer"),
         "expected a mapping of options, got the string 'fast'"),
        ("experiment: [a]\n", ("c.yaml:11:13", "experiment"), "expected a mapping of options, got a list"),
        ("optimizer: 3\n", ("c.yaml:11:12", "optimizer"),
         "expected the name of an optimizer or a mapping, got the number 3"),
        ("loss: [mse]\n", ("c.yaml:11:7", "loss"), "expected the name of a loss or a mapping, got a list"),
        ("loss: {name: 3}\n", ("c.yaml:11:14", "loss.name"), "expected the name of a loss, got the number 3"),
        ("loss: {name: }\n", ("c.yaml:11:14", "loss.name"),
         "expected the name of a loss, got nothing (null)"),
        ("loss: ''\n", ("c.yaml:11:7", "loss.name"), "expected the name of a loss, got the string ''"),
        ("loss: true\n", ("c.yaml:11:7", "loss"),
         "expected the name of a loss or a mapping, got the boolean true"),
    ],
)  # fmt: skip
def test_a_section_of_the_wrong_form_is_shown(tmp_path, text, place, message):
    found = mistake(write(tmp_path, BASE + text))
    assert places([found]) == [place]
    assert found.message == message


@pytest.mark.parametrize(
    ("text", "path", "suggestion"),
    [
        ("lr: 0.1\n", "lr", "it belongs below optimizer"),
        ("epochs: 3\n", "epochs", "it belongs below trainer"),
        ("batch_size: 3\n", "batch_size", "it belongs below dataset"),
        ("seed: 3\n", "seed", "it belongs below experiment"),
        ("input_dim: 3\n", "input_dim", "it belongs below model"),
        ("num_classes: 3\n", "num_classes", "it belongs below model or dataset"),
        ("trainer: {lr: 0.1}\n", "trainer.lr", "it belongs below optimizer"),
        ("trainer: {batch_size: 4}\n", "trainer.batch_size", "it belongs below dataset"),
        ("optimizer: {epochs: 4}\n", "optimizer.epochs", "it belongs below trainer"),
        ("loss: {num_classes: 4}\n", "loss.num_classes", "it belongs below model or dataset"),
        ("trainer: {early_stopping: {patience: 3, monitor: val_loss}}\n", "trainer.early_stopping.monitor",
         "it belongs below trainer"),
        ("zebra: 3\n", "zebra", None),
        ("data: {name: digits}\n", "data", "did you mean 'dataset'?"),
        ("train: {epochs: 3}\n", "train", "did you mean 'trainer'?"),
        ("learning_rate: 3\n", "learning_rate", None),
    ],
)  # fmt: skip
def test_a_key_in_the_wrong_place_is_sent_home(tmp_path, text, path, suggestion):
    found = mistake(write(tmp_path, BASE + text))
    assert (found.path, found.suggestion) == (path, suggestion)


def test_an_unknown_section_lists_the_sections_there_are(tmp_path):
    found = mistake(write(tmp_path, BASE + "zebra: 3\n"))
    assert any(
        note.startswith("sections: callbacks, checkpoint, dataset, experiment, ") for note in found.notes
    )


@pytest.mark.parametrize("top", ["- model\n", "model\n", "3\n", "null\n", "---\n"])
def test_the_top_level_must_be_a_mapping(tmp_path, top):
    (line,) = mistake(write(tmp_path, top)).render().splitlines()
    assert "the top level must be a mapping of sections, not " in line


def test_a_deprecated_component_gives_a_warning_and_no_error(tmp_path):
    path = write(tmp_path, "model:\n  name: old\ndataset: data\n")
    (warning,) = resolve_file(path, registry=odd_registry()).warnings
    assert (warning.level, places([warning])) == ("warning", [("c.yaml:2:9", "model.name")])
    assert warning.message == "model 'odd:old' is deprecated: use any, since 0.1"
    assert warning.render().startswith("warning[deprecated]: ")


def test_a_place_is_that_of_the_nearest_thing_that_was_written(tmp_path):
    locate = resolve_file(write(tmp_path, BASE)).locate
    for path, place in (
        (("model", "input_dim"), "3:14"),
        (("model", "hidden_dims", 0), "4:17"),
        (("model", "hidden_dims"), "4:3"),
        (("model", "dropout"), "1:1"),
    ):
        assert str(locate(path)).endswith(f"c.yaml:{place}")
    assert locate(("trainer", "epochs")) is None


# --- paths -------------------------------------------------------------------------------------------


def test_paths_of_data_and_output_are_relative_to_the_current_directory(tmp_path, monkeypatch):
    text = "model: any\ndataset: {name: tensor, root: data}\nexperiment: {runs_dir: ~/out}\n"
    path = write(tmp_path, text, "configs/c.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    config = resolved(path, registry=odd_registry())
    assert config["dataset"]["root"] == str(tmp_path / "data")
    assert config["experiment"]["runs_dir"] == "/home/me/out"


LOCAL = "from trainlattice import register_model\n\n\n@register_model('mine')\ndef mine():\n    pass\n"


def test_local_files_are_relative_to_the_file_that_names_them(tmp_path, monkeypatch):
    write(tmp_path, LOCAL, "base/mine.py")
    write(tmp_path, "model: mine\nplugins:\n  local: [./mine.py]\n", "base/base.yaml")
    path = write(tmp_path, "extends: ../base/base.yaml\ndataset: data\n", "other/c.yaml")
    monkeypatch.chdir("/")
    config = resolved(path, registry=odd_registry())
    assert config["model"] == {"name": "local:mine", "inputs": None}
    (local,) = config["plugins"]["local"]
    assert os.path.isabs(local)
    assert Path(local).resolve() == (tmp_path / "base" / "mine.py").resolve()


def test_local_files_of_an_override_are_relative_to_the_current_directory(tmp_path, monkeypatch):
    write(tmp_path, LOCAL, "mine.py")
    path = write(tmp_path, "model: mine\ndataset: data\n", "configs/c.yaml")
    monkeypatch.chdir(tmp_path)
    config = resolved(path, "plugins.local=[mine.py]", registry=odd_registry())
    assert config["plugins"]["local"] == [str(tmp_path / "mine.py")]


def test_a_local_file_that_is_missing_is_shown_where_it_is_named(tmp_path):
    path = write(tmp_path, BASE + "plugins:\n  local:\n  - nope.py\n")
    found = mistake(path)
    assert (found.code, places([found])) == ("broken-plugin", [("c.yaml:13:5", "plugins.local.0")])
    assert "nope.py" in found.message


# --- from Python -------------------------------------------------------------------------------------


def test_plain_data_is_checked_like_a_file(tmp_path):
    data = {
        "model": {"name": "mlp", "input_dim": 4, "hidden_dims": (8,), "num_classes": 3},
        "dataset": {"name": "synthetic", "batch_size": 8, "input_shape": [4], "num_classes": 3},
    }
    assert resolve_mapping(data).config.as_plain() == resolved(write(tmp_path, BASE))


def test_mistakes_in_plain_data_are_shown_by_their_path():
    with pytest.raises(ConfigError) as caught:
        resolve_mapping({"model": "mlp", "dataset": "synthetic", "trainer": {"epochs": True, "epoch": 3}})
    assert [found.path for found in caught.value.diagnostics] == ["trainer.epochs", "trainer.epoch"]
    assert str(caught.value).splitlines()[:2] == [
        "error[wrong-type]: expected an integer, got the boolean True",
        "  --> trainer.epochs",
    ]


def test_overrides_apply_to_plain_data_too():
    resolution = resolve_mapping({"model": "mlp", "dataset": "synthetic"}, ["trainer.epochs=3"])
    assert resolution.config.trainer.epochs == 3


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused_from_python_too(number):
    with pytest.raises(ConfigError) as caught:
        resolve_mapping({"model": "mlp", "dataset": "synthetic", "optimizer": {"lr": number}})
    assert caught.value.diagnostics[0].path == "optimizer.lr"


def test_sections_of_the_resolved_configuration_are_found_by_name(tmp_path):
    config = resolve_file(write(tmp_path, BASE)).config
    assert config.one("model").options.input_dim == 4
    assert config.one("dataset").settings.batch_size == 8
    assert config.one("scheduler") is None
    assert config.one("callbacks") is None
    assert [component.name for component in config.many("callbacks")] == ["callbacks:progress"]
    assert config.many("model") == ()
    assert [component.path for component in config.components()] == [
        ("mode",), ("model",), ("dataset",), ("loss",), ("optimizer",), ("callbacks", 0),
    ]  # fmt: skip
