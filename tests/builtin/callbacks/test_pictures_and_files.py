"""param_histogram, profiler and image_grid: what is in their files."""

import json
import struct
import zlib

import pytest
import torch

from support.by_hand import line
from support.runs import InOrder, run_dirs, tiny, train
from trainlattice import Callback, register_postprocessor
from trainlattice.diagnostics.errors import ConfigError
from trainlattice_plugin_callbacks.image_grid import gray_values, grid
from trainlattice_plugin_callbacks.param_histogram import histogram
from trainlattice_plugin_callbacks.png import png

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": [1.0] * 5, "val_y": [1.0] * 5, "batch_size": 1}


def with_callbacks(config, *callbacks):
    return {**config, "callbacks": list(callbacks)}


# --- histograms


def lines(run):
    return [json.loads(text) for text in (run / "histograms.jsonl").read_text().splitlines()]


def test_a_histogram_by_hand():
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 4.0]])
    assert histogram(values, 4) == {
        "count": 6,
        "nonfinite": 0,
        "min": 0.0,
        "max": 4.0,
        "mean": pytest.approx(14 / 6),
        "std": pytest.approx((sum((v - 14 / 6) ** 2 for v in (0, 1, 2, 3, 4, 4)) / 6) ** 0.5),
        "edges": [0.0, 4.0],
        "bins": [1, 1, 1, 3],
    }


def test_one_value_and_values_that_are_not_finite():
    one = histogram(torch.tensor([2.0, float("nan"), float("inf")]), 2)
    assert (one["count"], one["nonfinite"], one["std"]) == (1, 2, 0.0)
    assert (one["edges"], one["bins"]) == ([1.5, 2.5], [0, 1])
    none = histogram(torch.tensor([float("nan")]), 2)
    assert (none["count"], none["nonfinite"], none["mean"], none["bins"]) == (0, 1, None, [0, 0])


def test_weights_are_written_after_epochs_and_steps(tmp_path):
    config = line(dataset=POINTS, trainer={"epochs": 2})
    histograms = {"name": "param_histogram", "every_epochs": 2, "every_steps": 3, "bins": 1}
    found = lines(train(with_callbacks(config, histograms), tmp_path).run_dir)
    assert [(h["epoch"], h["step"], h["of"], h["name"]) for h in found] == [
        (1, 3, "weight", "w"),
        (2, 6, "weight", "w"),
        (2, 8, "weight", "w"),
    ]
    assert [h["mean"] for h in found] == pytest.approx([1 - 0.8**step for step in (3, 6, 8)], rel=1e-6)


def test_gradients_are_those_of_the_step_before_they_are_clipped(tmp_path):
    config = line(dataset=POINTS, trainer={"max_grad_norm": 0.5, "log_every": 100})
    histograms = {"name": "param_histogram", "every_epochs": None, "every_steps": 2, "gradients": True}
    found = lines(train(with_callbacks(config, histograms), tmp_path).run_dir)
    assert [(h["step"], h["of"]) for h in found] == [
        (2, "gradient"),
        (2, "weight"),
        (4, "gradient"),
        (4, "weight"),
    ]
    assert [h["mean"] for h in found] == pytest.approx([-1.9, 0.1, -1.7, 0.2], rel=1e-5)


def test_gradients_of_a_step_that_was_skipped_are_not_written(tmp_path):
    points = {**POINTS, "x": [1.0, 3e38, 1.0, 1.0], "y": [1.0, -3e38, 1.0, 1.0]}
    config = line(dataset=points, trainer={"nonfinite": "skip"})
    histograms = {"name": "param_histogram", "every_epochs": None, "every_steps": 1, "gradients": True}
    found = lines(train(with_callbacks(config, histograms), tmp_path, extra_callbacks=[InOrder()]).run_dir)
    assert [(h["step"], h["of"]) for h in found] == [
        (s, w) for s in (1, 2, 3) for w in ("gradient", "weight")
    ]
    assert all(h["nonfinite"] == 0 for h in found)


@pytest.mark.parametrize("gradients", [False, True])
def test_its_class_says_histogram(tmp_path, gradients):
    """Messages and tracebacks name it."""

    class Asks(Callback):
        def on_run_start(self, trainer):
            self.names = [type(callback).__name__ for _, callback in trainer.callbacks.named]

    asks = Asks()
    histograms = {"name": "param_histogram", "every_steps": 3, "gradients": gradients}
    train(with_callbacks(line(dataset=POINTS), histograms), tmp_path, extra_callbacks=[asks])
    assert asks.names == ["WeightAndGradientHistograms" if gradients else "WeightHistograms", "Asks"]


def test_only_those_that_are_named(tmp_path):
    run = train(with_callbacks(tiny(), {"name": "param_histogram", "params": ["bias"]}), tmp_path).run_dir
    assert {h["name"] for h in lines(run)} == {"layers.1.bias", "layers.4.bias"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every_epochs": None}, "nothing would be written"),
        ({"gradients": True}, "gradients needs every_steps"),
        ({"params": ["heads"]}, "no parameter is named 'heads'"),
    ],
)
def test_histograms_that_could_not_be_are_refused(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        train(with_callbacks(tiny(), {"name": "param_histogram", **options}), tmp_path)
    assert not run_dirs(tmp_path)


# --- profiler


def test_traces_of_the_active_steps_and_no_profiler_afterwards(tmp_path):
    class Asks(Callback):
        def __init__(self):
            self.active = []

        def on_step_end(self, trainer):
            self.active.append(torch.autograd._profiler_enabled())

    asks = Asks()
    profiler = {"name": "profiler", "skip_first": 1, "wait": 1, "warmup": 1, "active": 2, "repeat": 2}
    config = line(dataset={**POINTS, "x": [1.0] * 14, "y": [1.0] * 14})
    run = train(with_callbacks(config, profiler), tmp_path, extra_callbacks=[asks]).run_dir
    # Asked when the profiler has gone on to the next step: 4 and 5 are written, then 8 and 9.
    assert [step + 1 for step, active in enumerate(asks.active) if active] == [3, 4, 7, 8]
    found = sorted((run / "profiler").iterdir())
    assert [path.name for path in found] == ["step-00000005.json", "step-00000009.json"]
    for path in found:
        names = {event["name"] for event in json.loads(path.read_text())["traceEvents"]}
        steps = {name for name in names if name.startswith("ProfilerStep")}
        assert len(steps) == 2


@pytest.mark.parametrize("raised", [ZeroDivisionError, KeyboardInterrupt])
def test_the_profiler_stops_with_the_run_and_leaves_what_it_has(tmp_path, raised):
    class Fails(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 4:
                raise raised

    with pytest.raises(raised):
        train(with_callbacks(line(dataset=POINTS), {"name": "profiler"}), tmp_path, extra_callbacks=[Fails()])
    assert not torch.autograd._profiler_enabled()
    (run,) = run_dirs(tmp_path)
    assert [path.name for path in (run / "profiler").iterdir()] == ["step-00000004.json"]


# --- image_grid


def decoded(path):
    """Rows of pixels of a PNG, read by hand: ``[H, W, C]``."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + content),)
        chunks[kind], at = content, at + 12 + length
    width, height, depth, color, *rest = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    channels = {0: 1, 2: 3}[color]
    rows = zlib.decompress(chunks[b"IDAT"])
    stride = 1 + width * channels
    assert len(rows) == stride * height
    assert {rows[row * stride] for row in range(height)} == {0}
    pixels = b"".join(rows[row * stride + 1 : (row + 1) * stride] for row in range(height))
    return torch.tensor(list(pixels), dtype=torch.uint8).reshape(height, width, channels)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_holds_its_pixels(tmp_path, channels):
    pixels = torch.arange(5 * 4 * channels, dtype=torch.uint8).reshape(5, 4, channels)
    path = tmp_path / "x.png"
    path.write_bytes(png(bytes(pixels.flatten().tolist()), 4, 5, channels))
    assert torch.equal(decoded(path), pixels)


def test_a_grid_goes_row_by_row_with_a_black_gap():
    images = torch.stack([torch.full((1, 2, 3), value, dtype=torch.uint8) for value in (10, 20, 30)])
    found = grid(images, 2)[:, :, 0].tolist()
    row = [10] * 3 + [0, 0] + [20] * 3
    assert found == [row, row, [0] * 8, [0] * 8, [30] * 3 + [0] * 5, [30] * 3 + [0] * 5]


@pytest.mark.parametrize(
    ("values", "value_range", "expected"),
    [
        ([-1.0, torch.nan, 1.0], None, [0, 0, 255]),
        ([5.0, torch.nan, 10.0], None, [0, 0, 255]),
        ([torch.inf, -torch.inf, -3.0, -2.0, -1.0], None, [0, 0, 0, 128, 255]),
        ([torch.nan, torch.inf], None, [0, 0]),
        ([7.0, 7.0, torch.nan], None, [0, 0, 0]),
        ([torch.inf, torch.nan, -torch.inf, 0.0, 2.0], (-1.0, 1.0), [0, 0, 0, 128, 255]),
    ],
)
def test_what_is_not_finite_is_black_and_has_no_part_in_the_range(values, value_range, expected):
    """The image beside it is as it would be without."""
    image = torch.tensor(values, dtype=torch.float64).reshape(1, 1, 1, -1)
    beside = torch.linspace(0.0, 1.0, len(values), dtype=torch.float64).reshape(1, 1, 1, -1)
    found = gray_values(torch.cat([image, beside]), value_range)
    assert found[0].flatten().tolist() == expected
    assert torch.equal(found[1:], gray_values(beside, value_range))


@register_postprocessor("gridded_pictures")
def gridded_pictures(options):
    """``[N, 1]`` becomes ``[N, 3, 1, 2]``: red is the value, green its double, blue nothing."""

    def pictures(value):
        return torch.stack([value, 2 * value, 0 * value], dim=1).expand(-1, 3, 2).unsqueeze(2)

    return pictures


def test_pictures_of_the_first_batch_of_each_validation(tmp_path):
    """w is 0.2 after the first step."""
    values = (0.0, 0.5, 1.0, 9.0, 2.0, 2.0, 2.0)
    points = {"x": [1.0] * 4, "y": [1.0] * 4, "val_x": values, "val_y": [1.0] * 7, "batch_size": 4}
    config = line(dataset=points, trainer={"epochs": 2})
    config["postprocess"] = [{"name": "gridded_pictures", "output": "rgb"}]
    image_grid = {"name": "image_grid", "key": "post_processed/rgb", "count": 3, "columns": 3}
    image_grid["value_range"] = [0.0, 1.0]
    run = train(with_callbacks(config, image_grid), tmp_path).run_dir
    found = sorted((run / "images").iterdir())
    assert [path.name for path in found] == [
        "post_processed-rgb_epoch0001_step00000001.png",
        "post_processed-rgb_epoch0002_step00000002.png",
    ]
    pixels = decoded(found[0])
    assert pixels.shape == (1, 3 * 2 + 2 * 2, 3)
    reds = pixels[0, [0, 4, 8]].tolist()
    assert reds == [[round(255 * 0.2 * x), round(2 * 255 * 0.2 * x), 0] for x in values[:3]]


@register_postprocessor("gridded_rows")
def gridded_rows(options):
    return lambda value: value.unsqueeze(1)  # [N, 3] becomes [N, 1, 3]


def test_without_a_range_each_image_is_its_own(tmp_path):
    config = {**tiny(trainer={"epochs": 1}), "postprocess": [{"name": "gridded_rows", "output": "rows"}]}
    image_grid = {"name": "image_grid", "key": "post_processed/rows", "count": 2}
    (path,) = (train(with_callbacks(config, image_grid), tmp_path).run_dir / "images").iterdir()
    pixels = decoded(path)[0, :, 0].tolist()
    assert len(pixels) == 3 + 2 + 3
    for image in (pixels[:3], pixels[5:]):
        assert (min(image), max(image)) == (0, 255)


def test_predictions_that_are_no_images_are_named_and_training_is_saved(tmp_path):
    with pytest.raises(ValueError, match=r"pred has the shape \[8, 3\], and image_grid shows"):
        train(with_callbacks(tiny(), {"name": "image_grid"}), tmp_path)
    (run,) = run_dirs(tmp_path)
    assert (run / "checkpoints" / "last.pt").is_file()


def test_predictions_of_training_are_not_kept_for_it(tmp_path):
    """What a step no longer needs is let go, as without callbacks."""

    class Asks(Callback):
        def on_run_start(self, trainer):
            self.keeps = trainer._stepper.keeps_containers

    asks = Asks()
    train(with_callbacks(line(), {"name": "image_grid"}), tmp_path, extra_callbacks=[asks])
    assert asks.keeps is False
