"""Pairs of tensors in files."""

import pickle

import pytest
import torch

from support.runs import records, tiny, train
from trainlattice import OptionError
from trainlattice_plugin_datasets.options import TensorOptions
from trainlattice_plugin_datasets.tensor import open_tensor

pytestmark = pytest.mark.torch


def write(directory, labels, features=None, val_labels=None):
    for name, held in (("train.pt", labels), ("validation.pt", labels if val_labels is None else val_labels)):
        held = torch.as_tensor(held)
        x = torch.ones(len(held), 4) if features is None else features
        torch.save({"features": x, "labels": held}, directory / name)


def opened(directory, **options):
    return open_tensor(TensorOptions(root=str(directory), **{"num_classes": 3, **options}))


def refused(directory, **options):
    with pytest.raises(OptionError) as raised:
        opened(directory, **options)
    return raised.value


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
)
def test_integer_labels_of_any_width_are_classes(tmp_path, dtype):
    write(tmp_path, torch.tensor([0, 1, 1]).to(dtype))
    splits = opened(tmp_path)
    assert splits.train.targets.dtype == torch.int64
    assert splits.train.targets.tolist() == [0, 1, 1]
    assert splits.contract.task == "classification"


def test_the_width_of_integer_labels_does_not_change_the_loss(tmp_path):
    losses = []
    for dtype in (torch.int64, torch.int16, torch.uint8):
        write(tmp_path, torch.tensor([0, 1, 2, 1]).to(dtype), torch.eye(4))
        config = tiny(dataset={"name": "tensor", "root": str(tmp_path), "num_classes": 3, "batch_size": 2})
        losses.append([r["loss"] for r in records(train(config, tmp_path).run_dir, "batch")])
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_floating_point_labels_are_a_regression(tmp_path, dtype):
    write(tmp_path, torch.tensor([[0.5], [1.5]], dtype=dtype))
    splits = opened(tmp_path, num_classes=1)
    assert splits.contract.task == "regression"
    assert splits.train.targets.dtype == torch.float32
    assert splits.train.targets.tolist() == [[0.5], [1.5]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.uint8, torch.int64])
def test_features_of_any_type_become_float32(tmp_path, dtype):
    write(tmp_path, [0, 1], torch.tensor([[1, 2], [3, 4]]).to(dtype))
    splits = opened(tmp_path)
    assert splits.train.inputs.dtype == torch.float32
    assert splits.train.inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_the_contract_has_the_shape_of_the_file(tmp_path):
    write(tmp_path, [0, 1], torch.ones(2, 1, 8, 6))
    assert opened(tmp_path).contract.input_shape == (1, 8, 6)


def test_the_pairs_are_read_from_the_named_files(tmp_path):
    torch.save({"features": torch.ones(2, 4), "labels": torch.tensor([0, 1])}, tmp_path / "a.pt")
    torch.save({"features": torch.ones(1, 4), "labels": torch.tensor([2])}, tmp_path / "b.pt")
    splits = opened(tmp_path, train_file="a.pt", val_file="b.pt")
    assert (len(splits.train), len(splits.val)) == (2, 1)


@pytest.mark.parametrize(
    ("labels", "row", "value"), [([0, 3], 1, 3), ([-1, 0], 0, -1), ([0, 1, 200], 2, 200)]
)
def test_a_label_outside_the_classes_is_refused_with_its_row_and_value(tmp_path, labels, row, value):
    write(tmp_path, labels)
    error = refused(tmp_path)
    assert error.option == ("train_file",)
    assert f"label {value} in row {row} is outside 0..2" in error.message


def test_a_label_outside_the_classes_in_the_validation_file_is_refused_too(tmp_path):
    write(tmp_path, [0, 1], val_labels=[0, 5])
    error = refused(tmp_path)
    assert error.option == ("val_file",)
    assert "label 5 in row 1" in error.message


@pytest.mark.parametrize(
    ("labels", "row", "value"), [([[1.0], [float("nan")]], 1, "nan"), ([[-float("inf")]], 0, "-inf")]
)
def test_a_target_that_is_not_finite_is_refused_with_its_row_and_value(tmp_path, labels, row, value):
    write(tmp_path, labels)
    error = refused(tmp_path, num_classes=1)
    assert error.option == ("train_file",)
    assert f"label {value} in row {row}" in error.message


def test_features_and_labels_of_different_lengths_are_refused(tmp_path):
    write(tmp_path, [0, 1, 2], torch.ones(2, 4))
    assert "has 2 features and 3 labels" in refused(tmp_path).message


def test_files_that_do_not_go_together_are_refused(tmp_path):
    write(tmp_path, [0, 1])
    torch.save({"features": torch.ones(2, 5), "labels": torch.tensor([0, 1])}, tmp_path / "validation.pt")
    error = refused(tmp_path)
    assert error.option == ("val_file",)
    assert "validation.pt has features [5]" in error.message


@pytest.mark.parametrize(
    "content",
    [
        torch.ones(2),
        {"features": torch.ones(2, 4)},
        {"features": [1, 2], "labels": torch.ones(2)},
        {"features": torch.tensor(1.0), "labels": torch.tensor(1)},
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "train.pt")
    torch.save(content, tmp_path / "validation.pt")
    error = refused(tmp_path)
    assert error.option == ("train_file",)
    assert str(tmp_path / "train.pt") in error.message


def test_a_missing_directory_or_file_is_named(tmp_path):
    assert refused(tmp_path / "gone").option == ("root",)
    write(tmp_path, [0, 1])
    (tmp_path / "validation.pt").unlink()
    error = refused(tmp_path)
    assert error.option == ("val_file",)
    assert f"{tmp_path / 'validation.pt'} does not exist" in error.message


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize(
    "save", [torch.save, lambda content, path: path.write_bytes(pickle.dumps(content, protocol=2))]
)
def test_a_file_with_code_is_refused_and_the_code_not_run(tmp_path, save):
    write(tmp_path, [0, 1])
    save({"features": Payload(tmp_path / "canary"), "labels": torch.ones(2)}, tmp_path / "train.pt")
    error = refused(tmp_path)
    assert error.option == ("train_file",)
    assert "holds io.open, which could run code, and was not loaded" in error.message
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("content", [b"", b"not a tensor", b"PK\x03\x04 half a zip"])
def test_a_file_that_holds_no_tensors_is_refused(tmp_path, content):
    write(tmp_path, [0, 1])
    (tmp_path / "train.pt").write_bytes(content)
    error = refused(tmp_path)
    assert error.option == ("train_file",)
    assert str(tmp_path / "train.pt") in error.message


def test_a_truncated_file_is_refused(tmp_path):
    write(tmp_path, [0, 1])
    whole = (tmp_path / "train.pt").read_bytes()
    (tmp_path / "train.pt").write_bytes(whole[: len(whole) // 2])
    assert refused(tmp_path).option == ("train_file",)
