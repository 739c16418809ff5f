"""Post-processors: which keys they read and write, when, and their state."""

import pytest
import torch
from torch import nn

from support.by_hand import line
from support.runs import checkpoint, records, run_dirs, tiny, train
from trainlattice import Callback, Options, register_metric, register_postprocessor
from trainlattice.diagnostics.errors import ConfigError

pytestmark = pytest.mark.torch
POINTS = {"x": [1.0, 2.0, 3.0], "y": [2.0, 4.0, 9.0], "val_x": [1.0], "val_y": [2.0], "batch_size": 2}


class TimesOptions(Options):
    factor: float = 10.0


@register_postprocessor("times", options=TimesOptions)
class Times:
    def __init__(self, options):
        self.factor = options.factor

    def __call__(self, value):
        return value * self.factor


@register_postprocessor("parts")
def parts(value):
    return {"low": value - 1, "high": value + 1}


@register_postprocessor("parts_of")
def build_parts_of(options):
    return parts


@register_postprocessor("seen_mean")
class SeenMean(nn.Module):
    """The mean of all values of training, as a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, value):
        if self.training:
            self.total += value.detach().sum()
            self.count += value.numel()
        return value - self.total / self.count.clamp(min=1)


class Seen(Callback):
    def __init__(self):
        self.found = []

    def on_batch_end(self, trainer, phase, container):
        made = {key: value.flatten().tolist() for key, value in container.items() if "post_processed" in key}
        self.found.append((phase, made))


def config(*processors, **sections):
    made = line(
        dataset=POINTS,
        model={"name": "line", "w0": 2.0},
        optimizer={"name": "sgd", "lr": 1e-12},
        **sections,
    )
    return {**made, "postprocess": list(processors)}


def test_an_output_has_the_component_s_name_or_the_one_that_is_given(tmp_path):
    seen = Seen()
    train(
        config({"name": "times"}, {"name": "times", "output": "half", "factor": 0.5}),
        tmp_path,
        extra_callbacks=[seen],
    )
    assert seen.found[-1] == ("val", {"post_processed/times": [20.0], "post_processed/half": [1.0]})
    assert [phase for phase, _ in seen.found] == ["train", "train", "val"]


def test_a_later_one_reads_what_an_earlier_one_wrote(tmp_path):
    seen = Seen()
    later = {"name": "times", "output": "again", "inputs": {"value": "post_processed/times"}}
    train(config({"name": "times"}, later), tmp_path, extra_callbacks=[seen])
    assert seen.found[-1][1]["post_processed/again"] == [200.0]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"unfurl": True}, {"low": [1.0], "high": [3.0]}),
        ({"outputs": {"high": "top"}}, {"top": [3.0]}),
    ],
)
def test_a_mapping_is_spread(tmp_path, settings, expected):
    seen = Seen()
    train(config({"name": "parts_of", **settings}), tmp_path, extra_callbacks=[seen])
    assert seen.found[-1][1] == {f"post_processed/{key}": value for key, value in expected.items()}


def test_phases_say_where_it_works(tmp_path):
    seen = Seen()
    train(config({"name": "times", "phases": ["val"]}), tmp_path, extra_callbacks=[seen])
    assert [bool(made) for _, made in seen.found] == [False, False, True]


def test_a_loss_may_read_it_and_learns_through_it(tmp_path):
    """loss = mean((10 w x - y)^2); at w = 2, x = 1, y = 2 its gradient is 2 * 18 * 10."""
    made = config({"name": "times"})
    made["dataset"] = {"name": "points", "x": [1.0], "y": [2.0], "batch_size": 1}
    made["optimizer"] = {"name": "sgd", "lr": 0.001}
    made["loss"] = {"name": "mse", "pred_key": "post_processed/times"}
    run = train(made, tmp_path).run_dir
    assert checkpoint(run)["states"]["model/model"]["w"].item() == pytest.approx(2.0 - 0.001 * 360.0)
    assert records(run, "batch")[0]["loss"] == pytest.approx(18.0**2)


def test_a_metric_reads_it(tmp_path):
    @register_metric("largest")
    class Largest:
        def __init__(self):
            self.reset()

        def reset(self):
            self.value = torch.tensor(-1.0)

        def update(self, value):
            self.value = torch.maximum(self.value, value.max())

        def compute(self):
            return self.value

        def state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, state):
            self.value = state["value"]

    made = config({"name": "times"})
    made["metrics"] = [{"name": "largest", "inputs": {"value": "post_processed/times"}}]
    assert records(train(made, tmp_path).run_dir, "validation")[0]["val_largest"] == 20.0


def test_a_state_is_saved_and_does_not_change_in_a_validation(tmp_path):
    made = config({"name": "seen_mean"}, trainer={"epochs": 2})
    whole = train(made, tmp_path / "whole").run_dir
    held = checkpoint(whole)["states"]["postprocess/seen_mean"]
    assert (held["total"].item(), held["count"].item()) == (2 * 12.0, 6.0)  # predictions 2, 4, 6
    first = train({**made, "trainer": {**made["trainer"], "max_steps": 3}}, tmp_path).run_dir
    assert checkpoint(first)["states"]["postprocess/seen_mean"]["count"].item() == 5.0
    end = checkpoint(train(made, tmp_path, resume=first).run_dir)["states"]["postprocess/seen_mean"]
    assert (end["total"].item(), end["count"].item()) == (2 * 12.0, 6.0)


# --- mistakes


def refused(tmp_path, made):
    with pytest.raises(ConfigError) as raised:
        train(made, tmp_path)
    assert run_dirs(tmp_path) == []
    return str(raised.value)


def test_two_that_write_one_key_are_refused(tmp_path):
    text = refused(tmp_path, config({"name": "times"}, {"name": "times"}))
    assert "the key 'post_processed/times' is written by 'times' already" in text
    other = {"name": "parts_of", "outputs": {"low": "times"}}
    assert "postprocess.1.outputs" in refused(tmp_path, config({"name": "times"}, other))


def test_two_that_write_one_key_in_different_phases_are_not(tmp_path):
    train(config({"name": "times", "phases": ["train"]}, {"name": "times", "phases": ["val"]}), tmp_path)


def test_a_key_that_does_not_exist_is_named_with_who_asked(tmp_path):
    text = refused(tmp_path, config({"name": "times", "inputs": {"value": "pred/x"}}))
    assert "the post-processor 'times' needs the key 'pred/x'" in text


def test_what_cannot_be_spread_is_refused(tmp_path):
    assert "returned a Tensor, and outputs and unfurl" in refused(
        tmp_path, config({"name": "times", "unfurl": True})
    )
    text = refused(tmp_path, config({"name": "parts_of", "outputs": {"middle": "m"}}))
    assert "returned no 'middle'; it returned 'low', 'high'" in text
    text = refused(tmp_path, config({"name": "parts_of", "unfurl": True, "output": "x"}))
    assert "give one of output, outputs and unfurl" in text


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        (
            {"postprocess": [{"name": "times", "inputs": {"vaule": "pred"}}]},
            ("postprocess.0", "post-processor 'times'"),
        ),
        ({"loss": {"name": "mse", "target_key": "input"}}, ("loss", "loss 'mse'")),
    ],
)
def test_what_fails_in_the_first_batch_is_shown_where_it_failed(tmp_path, sections, where):
    config = {**tiny(), **sections}
    with pytest.raises(ConfigError) as raised:
        train(config, tmp_path)
    (found,) = raised.value.diagnostics
    assert found.path == where[0]
    assert f" in {where[1]}: " in found.message
