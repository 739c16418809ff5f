"""Circles, squares and triangles."""

import math

import pytest
import torch

from support.checking import mistake, write
from support.runs import records, train
from trainlattice_plugin_datasets.options import ShapesOptions
from trainlattice_plugin_datasets.shapes import CIRCLE, SQUARE, TRIANGLE, open_shapes

pytestmark = pytest.mark.torch


def opened(seed=0, **options):
    return open_shapes(ShapesOptions(**options), seed)


def everything(split):
    return split.fetch_batch(torch.arange(len(split)))


@pytest.mark.parametrize(("channels", "size"), [(1, (32, 32)), (3, (16, 24))])
def test_images_have_a_class_for_each_pixel(channels, size):
    splits = opened(samples=20, val_samples=5, channels=channels, image_size=size)
    assert (len(splits.train), len(splits.val)) == (20, 5)
    images, masks = everything(splits.train)
    assert (images.shape, images.dtype) == ((20, channels, *size), torch.float32)
    assert (masks.shape, masks.dtype) == ((20, *size), torch.int64)
    assert masks.unique().tolist() == [0, 1, 2, 3]
    contract = splits.contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == (
        (channels, *size),
        "classification",
        4,
    )


def test_an_image_depends_on_seed_split_and_index_alone():
    """Not on the batch that it comes in, on the other images or on how many there are."""
    few, many = opened(samples=6, val_samples=6), opened(samples=99, val_samples=9)
    images, masks = few.train.fetch_batch(torch.tensor([3, 5, 3]))
    for row, index in enumerate([3, 5, 3]):
        for data in (few.train, many.train):
            image, mask = data[index]
            assert torch.equal(image, images[row])
            assert torch.equal(mask, masks[row])
    assert torch.equal(everything(few.val)[0], many.val.fetch_batch(torch.arange(6))[0])
    others = [everything(few.train)[0], everything(few.val)[0], everything(opened(1, samples=6).train)[0]]
    pixels = torch.cat([other.flatten(1) for other in others])
    assert len(pixels.unique(dim=0)) == 18


def test_drawing_leaves_the_generators_of_the_run_alone():
    before = torch.get_rng_state()
    everything(opened(samples=3).train)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_noise_the_ground_is_0_and_a_shape_of_one_colour():
    images, masks = everything(opened(samples=50, noise=0.0, max_shapes=1, channels=3).train)
    assert images[(masks == 0).unsqueeze(1).expand_as(images)].unique().tolist() == [0.0]
    for image, mask in zip(images, masks, strict=True):
        (kind,) = mask[mask > 0].unique().tolist() or [0]
        assert kind in (CIRCLE, SQUARE, TRIANGLE)
        colour = image[:, mask > 0].unique(dim=1)
        assert colour.shape == (3, 1)
        assert bool(((colour >= 0.5) & (colour <= 1.0)).all())


def test_noise_has_the_deviation_that_is_given():
    clean, noisy = (everything(opened(samples=64, noise=noise).train)[0] for noise in (0.0, 0.25))
    difference = noisy - clean
    assert difference.std().item() == pytest.approx(0.25, rel=0.01)
    assert difference.mean().item() == pytest.approx(0.0, abs=0.01)


def test_areas_are_those_of_the_figures():
    """Of one radius, in images with room for them: pi r^2, (2 * 0.85 r)^2 and half of (2 r)^2."""
    _, masks = everything(opened(samples=300, max_shapes=1, radius=(0.1, 0.1), image_size=(100, 100)).train)
    whole = masks[:, [0, -1], :].eq(0).all(2).all(1) & masks[:, :, [0, -1]].eq(0).all(2).all(1)
    for kind, area in ((CIRCLE, math.pi * 100), (SQUARE, 17.0**2), (TRIANGLE, 200.0)):
        areas = masks[whole].eq(kind).flatten(1).sum(1)
        areas = areas[areas > 0]
        assert len(areas) > 20
        assert areas.float().mean().item() == pytest.approx(area, rel=0.03)


def test_an_image_has_from_one_to_the_largest_number_of_shapes():
    """Small ones in a large image rarely meet: each has a colour of its own."""
    images, _ = everything(
        opened(samples=60, max_shapes=3, radius=(0.02, 0.02), image_size=(64, 64), noise=0.0).train
    )
    counts = [len(image[image > 0].unique()) for image in images]
    assert set(counts) >= {1, 2, 3}
    assert max(counts) == 3


def test_an_image_that_is_not_there_is_an_index_error():
    data = opened(samples=3).train
    with pytest.raises(IndexError, match="image 3 of 3"):
        data[3]
    assert len(list(data)) == 3  # a for loop ends


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ("radius: [0.3, 0.2]", "dataset.radius"),
        ("channels: 2", "dataset.channels"),
        ("image_size: [8]", "dataset.image_size"),
    ],
)
def test_options_that_make_no_images_are_refused(tmp_path, options, path):
    found = mistake(
        write(tmp_path, f"model: {{name: unet, num_classes: 4}}\ndataset: {{name: shapes, {options}}}\n")
    )
    assert found.path.startswith(path)


def test_loader_processes_change_nothing(tmp_path):
    def losses(workers):
        data = {"samples": 12, "val_samples": 4, "image_size": [8, 8]}
        config = {
            "model": {"name": "unet", "channels": [4, 4], "num_classes": 4},
            "dataset": {"name": "shapes", **data, "batch_size": 4, "num_workers": workers},
            "trainer": {"device": "cpu", "epochs": 2, "log_every": 1},
            "callbacks": [],
        }
        return [r["loss"] for r in records(train(config, tmp_path / str(workers)).run_dir, "batch")]

    assert losses(0) == losses(2)
