"""Sections that are valid by themselves and do not fit together."""

from __future__ import annotations

import pytest

from support.checking import BASE, mistake, mistakes, places, resolved, write
from support.odd import odd_registry


@pytest.fixture(scope="module")
def registry():
    return odd_registry()


def shaped(tmp_path, model: str, data: str, rest: str = ""):
    return write(tmp_path, f"model: {{name: shaped{model}}}\ndataset: {{name: data{data}}}\n{rest}")


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (", shape: [1, 8, 8]", ", shape: [1, 8, 8]"),
        (", size: 64", ", shape: [1, 8, 8]"),
        (", size: 64", ", shape: [64]"),
        (", shape: [1, 8, 8], size: 3", ", shape: [1, 8, 8]"),
        (", outputs: 3", ", outputs: 3"),
        (", shape: [2], outputs: 3", ""),
        ("", ", shape: [2], outputs: 3"),
        (", outputs: 1", ", outputs: 1, task: classification"),
    ],
)
def test_what_fits_or_is_unknown_passes(tmp_path, registry, model, data):
    resolved(shaped(tmp_path, model, data), registry=registry)


@pytest.mark.parametrize(
    ("model", "data", "path", "message", "advice"),
    [
        (", shape: [1, 8, 8]", ", shape: [8, 8, 1]", "model.shape",
         "model 'odd:shaped' takes samples of shape [1, 8, 8], dataset 'odd:data' yields [8, 8, 1]",
         "set model.shape to [8, 8, 1]"),
        (", shape: [64]", ", shape: [1, 8, 8]", "model.shape",
         "model 'odd:shaped' takes samples of shape [64], dataset 'odd:data' yields [1, 8, 8]",
         "set model.shape to [1, 8, 8]"),
        (", size: 63", ", shape: [1, 8, 8]", "model.size",
         "model 'odd:shaped' takes 63 values per sample, dataset 'odd:data' yields 64 = 1*8*8",
         "set model.size to 64"),
        (", size: 63", ", shape: [64]", "model.size",
         "model 'odd:shaped' takes 63 values per sample, dataset 'odd:data' yields 64",
         "set model.size to 64"),
        (", outputs: 4", ", outputs: 3, task: classification", "model.outputs",
         "model 'odd:shaped' has 4 outputs, dataset 'odd:data' declares 3 classes",
         "set model.outputs to 3"),
        (", outputs: 4", ", outputs: 2", "model.outputs",
         "model 'odd:shaped' has 4 outputs, dataset 'odd:data' declares 2 outputs",
         "set model.outputs to 2"),
    ],
)  # fmt: skip
def test_shapes_and_widths_of_model_and_dataset_are_compared(
    tmp_path, registry, model, data, path, message, advice
):
    found = mistake(shaped(tmp_path, model, data), registry=registry)
    assert (found.code, found.path, found.message, found.notes) == ("contract", path, message, (advice,))


def test_a_mismatch_points_at_the_option_as_written(tmp_path):
    path = write(
        tmp_path,
        BASE.replace("input_dim: 4", "input_dim: 5").replace("  num_classes: 3\nd", "  num_classes: 2\nd"),
    )
    assert places(mistakes(path)) == [
        ("c.yaml:3:14", "model.input_dim"),
        ("c.yaml:5:16", "model.num_classes"),
    ]


def test_a_mismatch_of_a_default_points_at_the_section(tmp_path):
    path = write(tmp_path, BASE.replace("  input_dim: 4\n", ""))
    assert places([mistake(path)]) == [("c.yaml:1:1", "model.input_dim")]


@pytest.mark.parametrize(
    ("dataset", "classes"), [("digits", 10), ("{name: synthetic, input_shape: [1, 8, 8], num_classes: 7}", 7)]
)
def test_the_built_in_cnn_and_datasets_state_their_contracts(tmp_path, dataset, classes):
    model = "model: {name: cnn, input_shape: [1, 8, 8], num_classes: "
    resolved(write(tmp_path, f"{model}{classes}}}\ndataset: {dataset}\n"))
    assert (
        mistake(write(tmp_path, f"{model}{classes + 1}}}\ndataset: {dataset}\n")).path == "model.num_classes"
    )


CONVOLUTIONAL = "model: {name: shaped, channels: 1, divisor: 4}\ndataset: {name: data, shape: %s}\n"


@pytest.mark.parametrize("shape", ["[1, 8, 12]", "[1, 4]", "[1]", "null"])
def test_a_model_of_any_size_takes_what_its_strides_divide(tmp_path, registry, shape):
    resolved(write(tmp_path, CONVOLUTIONAL % shape), registry=registry)


@pytest.mark.parametrize(
    ("shape", "path", "message", "advice"),
    [
        ("[3, 8, 8]", "model.channels",
         "model 'odd:shaped' takes samples of 1 channels, dataset 'odd:data' yields [3, 8, 8]",
         "set model.channels to 3"),
        ("[1, 8, 6]", "model.divisor",
         "model 'odd:shaped' takes samples whose sizes are multiples of 4, dataset 'odd:data' yields [1, 8, 6]",
         "change model.divisor or the size of the samples"),
    ],
)  # fmt: skip
def test_channels_and_strides_of_a_model_of_any_size_are_compared(
    tmp_path, registry, shape, path, message, advice
):
    found = mistake(write(tmp_path, CONVOLUTIONAL % shape), registry=registry)
    assert (found.code, found.path, found.message, found.notes) == ("contract", path, message, (advice,))


def test_a_model_that_is_given_parts_of_a_sample_is_not_compared_with_the_whole(tmp_path, registry):
    text = "model: {name: shaped, shape: [2], inputs: {x: %s}}\ndataset: {name: data, shape: [3]}\n"
    resolved(write(tmp_path, text % "input/part"), registry=registry)
    assert mistake(write(tmp_path, text % "input"), registry=registry).path == "model.shape"


BINARY = ", outputs: 1", ", outputs: 2, task: classification"


def test_one_output_is_enough_for_a_yes_or_no(tmp_path, registry):
    resolved(shaped(tmp_path, *BINARY, "loss: bce_with_logits\n"), registry=registry)
    resolved(shaped(tmp_path, *BINARY, "loss: {name: focal, binary: true}\n"), registry=registry)


@pytest.mark.parametrize(
    "loss",
    [
        "cross_entropy",
        "{components: [{name: cross_entropy}, {name: bce_with_logits}]}",
    ],
)
def test_one_output_is_too_few_for_a_loss_of_classes(tmp_path, registry, loss):
    found = mistake(shaped(tmp_path, *BINARY, f"loss: {loss}\n"), registry=registry)
    assert (found.path, found.notes) == ("model.outputs", ("set model.outputs to 2",))


def test_two_outputs_for_three_classes_are_refused_whatever_the_loss(tmp_path, registry):
    path = shaped(tmp_path, ", outputs: 2", ", outputs: 3, task: classification", "loss: bce_with_logits\n")
    assert mistake(path, registry=registry).path == "model.outputs"


@pytest.mark.parametrize("keys", ["target_key: input", "pred_key: pred/code, target_key: target"])
def test_outputs_that_no_loss_compares_with_the_target_are_not_compared(tmp_path, registry, keys):
    """An autoencoder has as many outputs as inputs, whatever the classes."""
    loss = f"loss: {{name: open, {keys}}}\n"
    resolved(shaped(tmp_path, ", outputs: 4", ", outputs: 3, task: classification", loss), registry=registry)


# --- loss and task -----------------------------------------------------------------------------------


def test_a_loss_for_another_task_is_shown_at_its_name(tmp_path):
    found = mistake(write(tmp_path, BASE + "loss:\n  name: mse\n"))
    assert places([found]) == [("c.yaml:12:9", "loss.name")]
    assert (
        found.message
        == "loss 'losses:mse' is for regression, dataset 'datasets:synthetic' is for classification"
    )
    assert found.notes == ("name a loss for classification",)


def test_the_default_loss_is_compared_too_and_shown_at_the_dataset(tmp_path, registry):
    found = mistake(shaped(tmp_path, "", ", task: regression"), registry=registry)
    assert places([found]) == [("c.yaml:2:17", "loss.name")]
    assert (
        found.message
        == "loss 'losses:cross_entropy' is for classification, dataset 'odd:data' is for regression"
    )
    assert found.notes == ("no loss is given, so the default applies: name a loss for regression",)


@pytest.mark.parametrize(
    ("task", "loss"), [("regression", "l1"), ("classification", "open"), ("null", "mse")]
)
def test_a_loss_that_fits_or_takes_any_task_passes(tmp_path, registry, task, loss):
    resolved(shaped(tmp_path, "", f", task: {task}", f"loss: {loss}\n"), registry=registry)


# --- trainer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitor", ["val_loss", "val_accuracy"])
def test_a_classification_run_may_monitor_loss_and_accuracy(tmp_path, monitor):
    assert (
        resolved(write(tmp_path, BASE + f"trainer: {{monitor: {monitor}}}\n"))["trainer"]["monitor"]
        == monitor
    )


def test_a_regression_run_has_no_accuracy_to_monitor(tmp_path, registry):
    rest = "loss: mse\ntrainer:\n  monitor: val_accuracy\n"
    found = mistake(shaped(tmp_path, "", ", task: regression", rest), registry=registry)
    assert places([found]) == [("c.yaml:5:12", "trainer.monitor")]
    assert (
        found.message == "'val_accuracy' is no metric of this run with a regression loss; metrics: val_loss"
    )


def test_a_misspelt_metric_is_suggested(tmp_path):
    found = mistake(write(tmp_path, BASE + "trainer: {monitor: val_acuracy}\n"))
    assert found.suggestion == "did you mean 'val_accuracy'?"


def test_a_mode_that_does_not_tell_its_metrics_may_monitor_any(tmp_path, registry):
    text = "mode: pair\ndataset: data\nmodel: {first: any, second: any}\ntrainer: {monitor: val_distance}\n"
    assert resolved(write(tmp_path, text), registry=registry)["trainer"]["monitor"] == "val_distance"


def test_fp16_on_the_cpu_is_refused_before_torch_is_asked(tmp_path):
    found = mistake(write(tmp_path, BASE + "trainer: {device: cpu, precision: fp16}\n"))
    assert places([found]) == [("c.yaml:11:35", "trainer.precision")]
    assert found.suggestion == "did you mean 'bf16'?"


@pytest.mark.parametrize("trainer", ["{device: auto, precision: fp16}", "{device: 'cuda:1', precision: fp16}",
                                     "{device: cpu, precision: bf16}"])  # fmt: skip
def test_other_precisions_and_devices_pass_until_the_machine_is_asked(tmp_path, trainer):
    resolved(write(tmp_path, BASE + f"trainer: {trainer}\n"))
