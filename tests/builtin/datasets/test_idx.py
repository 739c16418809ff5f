"""IDX files, written here byte by byte."""

import gzip
import struct

import numpy
import pytest
import torch

from support.idx import idx, images, write_idx
from trainlattice import OptionError
from trainlattice_plugin_datasets.idx import open_idx, read_idx
from trainlattice_plugin_datasets.options import IdxOptions

pytestmark = pytest.mark.torch


def opened(directory, **options):
    return open_idx(IdxOptions(root=str(directory), **{"num_classes": 2, **options}))


def refused(directory, **options):
    with pytest.raises(OptionError) as raised:
        opened(directory, **options)
    return raised.value


@pytest.mark.parametrize("packed", [False, True])
def test_plain_and_gzipped_files_give_scaled_images_and_int64_labels(tmp_path, packed):
    write_idx(tmp_path, packed=packed)
    splits = opened(tmp_path)
    assert splits.train.inputs.shape == (20, 1, 2, 3)
    assert splits.train.inputs[1].flatten().tolist() == pytest.approx([k / 255 for k in range(6, 12)])
    assert splits.train.targets.dtype == torch.int64
    assert splits.val.targets.tolist() == [0, 1, 0, 1]
    assert len(splits.test) == 4
    contract = splits.contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == ((1, 2, 3), "classification", 2)


def test_a_gzipped_file_without_the_ending_is_read_and_a_name_with_the_ending_finds_the_plain_one(tmp_path):
    write_idx(tmp_path)
    plain = tmp_path / "train-images-idx3-ubyte"
    plain.write_bytes(gzip.compress(plain.read_bytes()))
    assert len(opened(tmp_path, train_labels="train-labels-idx1-ubyte.gz").train) == 20


def test_pixels_are_normalised_after_scaling(tmp_path):
    write_idx(tmp_path)
    splits = opened(tmp_path, mean=0.5, std=0.25)
    assert splits.train.inputs[0, 0, 0, 1].item() == pytest.approx((1 / 255 - 0.5) / 0.25)


def test_val_fraction_takes_validation_images_from_the_training_images_class_by_class(tmp_path):
    write_idx(tmp_path)
    splits = opened(tmp_path, val_fraction=0.2)
    assert (len(splits.train), len(splits.val), len(splits.test)) == (16, 4, 4)
    assert torch.bincount(splits.val.targets).tolist() == [2, 2]
    held_out = {tuple(image.flatten().tolist()) for image in splits.val.inputs}
    assert held_out.isdisjoint(tuple(image.flatten().tolist()) for image in splits.train.inputs)


@pytest.mark.parametrize(
    ("array", "code"),
    [
        (numpy.array([0, 255], numpy.uint8), 0x08),
        (numpy.array([-1, 127], numpy.int8), 0x09),
        (numpy.array([-300, 300], numpy.int16), 0x0B),
        (numpy.array([-70000, 70000], numpy.int32), 0x0C),
        (numpy.array([0.5, -1.5], numpy.float32), 0x0D),
        (numpy.array([[0.5], [1e300]], numpy.float64), 0x0E),
    ],
)
def test_every_type_of_the_format_is_read(tmp_path, array, code):
    (tmp_path / "f").write_bytes(idx(array, code))
    found = read_idx(tmp_path / "f")
    assert found.tolist() == array.tolist()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is no IDX file: it begins with "),
        (b"\x00\x00", "is no IDX file: it begins with 0000"),
        (b"\x89PNG\r\n\x1a\n", "is no IDX file: it begins with 89504e47"),
        (struct.pack(">HBB", 0, 0x07, 1) + struct.pack(">I", 0), "is no IDX file: it begins with 00000701"),
        (struct.pack(">HBB", 0, 0x08, 3) + struct.pack(">I", 5), "ends inside its header"),
        (idx(images(2))[:-1], "has 27 bytes, and its header promises 28"),
        (idx(images(2)) + b"x", "has 29 bytes, and its header promises 28"),
        (struct.pack(">HBB3I", 0, 0x08, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "and its header promises"),
        (gzip.compress(idx(images(50)))[:-20], "is no complete gzip file"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(tmp_path, data, says):
    write_idx(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(data)
    error = refused(tmp_path)
    assert error.option == ("train_images",)
    assert str(tmp_path / "train-images-idx3-ubyte") in error.message
    assert says in error.message


def test_a_missing_file_is_named_with_both_names(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    error = refused(tmp_path)
    assert error.option == ("test_labels",)
    assert "neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz exists" in error.message


def test_a_missing_directory_is_named(tmp_path):
    assert refused(tmp_path / "gone").option == ("root",)


def test_images_and_labels_of_different_numbers_are_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(numpy.zeros(19, numpy.uint8)))
    error = refused(tmp_path)
    assert error.option == ("train_labels",)
    assert "[20, 2, 3] and labels [19]" in error.message


def test_images_and_labels_in_each_others_place_are_refused(tmp_path):
    write_idx(tmp_path)
    error = refused(tmp_path, train_images="train-labels-idx1-ubyte", train_labels="train-images-idx3-ubyte")
    assert "expected [N, H, W] and [N]" in error.message


def test_a_label_outside_the_classes_is_refused_with_its_row(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(numpy.array([0] * 19 + [7], numpy.uint8)))
    error = refused(tmp_path)
    assert error.option == ("num_classes",)
    assert "label 7 in row 19 of train-labels-idx1-ubyte is outside 0..1" in error.message


def test_test_images_of_another_size_are_refused(tmp_path):
    write_idx(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(images(4, (3, 3))))
    error = refused(tmp_path)
    assert error.option == ("test_images",)
    assert "test images are [1, 3, 3], training images [1, 2, 3]" in error.message
