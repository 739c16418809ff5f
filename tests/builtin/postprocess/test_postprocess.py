"""The built-in post-processors: values by hand, state over a resume, what is refused."""

import signal

import pytest
import torch
from torch import nn

from support.by_hand import line
from support.runs import assert_same_end, checkpoint, run_dirs, tiny, train
from trainlattice import Callback, register_model
from trainlattice.diagnostics.errors import ConfigError, RunTerminated
from trainlattice_plugin_postprocess import options as schema
from trainlattice_plugin_postprocess import statistics, tensors

pytestmark = pytest.mark.torch
LOGITS = torch.tensor([[1.0, 3.0, 2.0], [0.0, 0.0, 5.0]])


def test_argmax_and_softmax():
    assert tensors.argmax(schema.DimOptions())(LOGITS).tolist() == [1, 2]
    soft = tensors.softmax(schema.SoftmaxOptions(temperature=2.0))(LOGITS)
    by_hand = (LOGITS / 2).exp() / (LOGITS / 2).exp().sum(1, keepdim=True)
    torch.testing.assert_close(soft, by_hand)
    assert tensors.softmax(schema.SoftmaxOptions())(LOGITS.bfloat16()).dtype == torch.float32


def test_channel_format_there_and_back():
    images = torch.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    last = tensors.channel_format(schema.ChannelOptions(to="nhwc"))(images)
    assert last.shape == (2, 4, 5, 3)
    assert last[1, 2, 3].tolist() == images[1, :, 2, 3].tolist()
    assert torch.equal(tensors.channel_format(schema.ChannelOptions(to="nchw"))(last), images)
    with pytest.raises(ValueError, match="at least three dimensions"):
        tensors.channel_format(schema.ChannelOptions(to="nchw"))(LOGITS)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"start": 1}, LOGITS[:, 1:]),
        ({"start": -2, "stop": -1}, LOGITS[:, 1:2]),
        ({"step": 2}, LOGITS[:, ::2]),
        ({"dim": 0, "stop": 1}, LOGITS[:1]),
        ({"dim": -1, "start": 2}, LOGITS[:, 2:]),
    ],
)
def test_tensor_slice(settings, expected):
    assert torch.equal(tensors.tensor_slice(schema.SliceOptions(**settings))(LOGITS), expected)


def test_mean_std_there_and_back():
    images = torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    mean, std = (0.1, 0.2, 0.3), (1.0, 2.0, 4.0)
    there = statistics.MeanStd(schema.MeanStdOptions(mean=mean, std=std))(images)
    torch.testing.assert_close(there[:, 2], (images[:, 2] - 0.3) / 4.0)
    back = statistics.MeanStd(schema.MeanStdOptions(mean=mean, std=std, inverse=True))(there)
    torch.testing.assert_close(back, images)
    one = statistics.MeanStd(schema.MeanStdOptions(mean=0.5, std=2.0))
    torch.testing.assert_close(one(LOGITS), (LOGITS - 0.5) / 2)
    assert one.state_dict() == {}


@pytest.mark.parametrize("dim", [1, -1, None])
def test_running_stats_are_those_of_all_that_training_has_seen(dim):
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(size, 3, generator=generator) * 3 + 100 for size in (4, 1, 7)]
    module = statistics.RunningStats(schema.RunningOptions(dim=dim))
    for batch in batches:
        found = module(batch)
    whole = torch.cat(batches).double()
    axis = (0, 1) if dim is None else 0
    mean, variance = whole.mean(axis), whole.var(axis, unbiased=False)
    torch.testing.assert_close(module.mean, mean)
    torch.testing.assert_close(module.squares / module.count, variance)
    torch.testing.assert_close(
        found, ((batches[-1] - mean) / (variance + 1e-5).sqrt()).float(), atol=1e-4, rtol=1e-4
    )
    module.eval()
    module(torch.zeros(2, 3))
    torch.testing.assert_close(module.mean, mean)
    again = statistics.RunningStats(schema.RunningOptions(dim=dim))
    again.load_state_dict(module.state_dict())
    assert torch.equal(again.eval()(LOGITS), module(LOGITS))


def test_statistics_resume_inside_an_epoch(tmp_path):
    class Stops(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 2:
                signal.raise_signal(signal.SIGTERM)

    settings = {**tiny(), "postprocess": [{"name": "running_stats", "output": "scaled"}]}
    settings["loss"] = {"name": "cross_entropy", "pred_key": "post_processed/scaled"}
    whole = train(settings, tmp_path / "whole", extra_callbacks=[Callback()]).run_dir
    with pytest.raises(RunTerminated):
        train(settings, tmp_path, extra_callbacks=[Stops()])
    (first,) = run_dirs(tmp_path)
    assert checkpoint(first)["states"]["postprocess/running_stats"]["mean"].shape == (3,)
    assert_same_end(whole, train(settings, tmp_path, resume=first, extra_callbacks=[Callback()]).run_dir)


@register_model("doubling")
class Doubling(nn.Module):
    """Writes its input and the doubles of it, one after the other."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return x * self.w

    def generate(self, x, length=2):
        steps = [x]
        for _ in range(length - 1):
            steps.append(self(steps[-1]))
        return torch.stack(steps, 1)


def generating(**settings):
    made = line(model={"name": "doubling"}, optimizer={"name": "sgd", "lr": 1e-12})
    made["dataset"] = {"name": "points", "x": [1.0], "y": [1.0], "val_x": [3.0], "val_y": [1.0]}
    return {
        **made,
        "postprocess": [{"name": "generate", "inputs": {"x": "input"}, "phases": ["val"], **settings}],
    }


def test_generate_calls_the_model_that_is_trained(tmp_path):
    seen = []

    class Sees(Callback):
        def on_batch_end(self, trainer, phase, container):
            if phase == "val":
                seen.append((container["post_processed/generate"], trainer.parts.models["model"].w))

    train(generating(arguments={"length": 4}), tmp_path, extra_callbacks=[Sees()])
    ((found, weight),) = seen
    assert found.flatten().tolist() == pytest.approx([3.0, 6.0, 12.0, 24.0])
    assert not found.requires_grad
    assert weight.requires_grad


def test_mistakes_are_shown_at_their_place(tmp_path):
    def refused(made):
        with pytest.raises(ConfigError) as raised:
            train(made, tmp_path)
        assert run_dirs(tmp_path) == []
        return str(raised.value)

    assert "the model, a Doubling, has no method 'sample'" in refused(generating(attribute="sample"))
    assert "postprocess.0" in refused(
        {**tiny(), "postprocess": [{"name": "mean_std", "mean": [1.0], "std": [1.0, 2.0]}]}
    )
    assert "postprocess.0.to" in refused({**tiny(), "postprocess": [{"name": "channel_format", "to": "chw"}]})
    assert "std" in refused({**tiny(), "postprocess": [{"name": "mean_std", "mean": 0.0, "std": 0.0}]})
