"""Micro-batches of which different amounts count, in a run, are one batch as large as all of them."""

import pytest
import torch
from torch import nn

from support.losses import CASES, build
from support.runs import InOrder, records, train, weights
from trainlattice import Options, register_dataset, register_model
from trainlattice.data import Splits, TensorData

pytestmark = pytest.mark.torch
CURRENT = []


class ShapedOptions(Options):
    shape: tuple[int, ...]


@register_model("predicts_in_shape", options=ShapedOptions)
class Shaped(nn.Module):
    """Predictions of this shape, a linear function of the input."""

    def __init__(self, options):
        super().__init__()
        self.shape = options.shape
        self.linear = nn.Linear(5, torch.Size(options.shape).numel())

    def forward(self, x):
        return self.linear(x).unflatten(1, self.shape)


@register_dataset("seven_samples")
def open_seven():
    """Trains and validates on the targets of the current case."""
    (targets,) = CURRENT
    inputs = torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    return Splits(TensorData(inputs, targets), TensorData(inputs, targets))


def run(case, options, directory, *, batch_size, accumulate=1, lr=0.1, **trainer):
    CURRENT[:] = [case.targets.clone()]
    config = {
        "model": {"name": "predicts_in_shape", "shape": list(case.shape)},
        "dataset": {"name": "seven_samples", "batch_size": batch_size},
        "loss": {
            "name": case.name,
            **{k: list(v) if isinstance(v, tuple) else v for k, v in options.items()},
        },
        "optimizer": {"name": "sgd", "lr": lr},
        "callbacks": [],
        "trainer": {"device": "cpu", "log_every": 1, "accumulate": accumulate, **trainer},
    }
    return train(config, directory, extra_callbacks=[InOrder()]).run_dir


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_window_of_ragged_micro_batches_is_one_batch(case, reduction, tmp_path):
    options = {"reduction": reduction, **case.options}
    whole = run(case, options, tmp_path, batch_size=7)
    parts = run(case, options, tmp_path, batch_size=3, accumulate=3)
    for (name, one), other in zip(weights(whole).items(), weights(parts).values(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6, msg=name)
    for kind, keys in (("batch", ["loss"]), ("epoch", ["train_loss", "val_loss"])):
        (one,), (other,) = records(whole, kind), records(parts, kind)
        assert [other[key] for key in keys] == pytest.approx([one[key] for key in keys], rel=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_is_that_of_plain_torch(case, tmp_path):
    """From the weights that the run began with, on all samples at once."""
    first = weights(run(case, case.options, tmp_path, batch_size=7, lr=1e-30))
    found = run(case, case.options, tmp_path, batch_size=3, accumulate=3)
    model = nn.Linear(5, torch.Size(case.shape).numel())
    model.load_state_dict({name.removeprefix("linear."): value for name, value in first.items()})
    inputs = torch.randn(7, 5, generator=torch.Generator().manual_seed(2))
    loss = build(case.name, **case.options)(model(inputs).unflatten(1, case.shape), case.targets)
    loss.backward()
    assert model.weight.grad.any()
    for name, parameter in model.named_parameters():
        expected = parameter.detach() - 0.1 * parameter.grad
        torch.testing.assert_close(weights(found)[f"linear.{name}"], expected, rtol=1e-5, atol=1e-6)
    assert records(found, "batch")[0]["loss"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_resumes(case, tmp_path):
    """Nothing that the options hold is in the state."""
    found = run(case, case.options, tmp_path, batch_size=3, epochs=2)
    saved = torch.load(found / "checkpoints" / "last.pt", weights_only=True)
    assert saved["states"]["loss"] == {}
    assert len(records(found, "epoch")) == 2
