"""A small batch through the parts before a run directory exists."""

import random

import pytest
import torch
from torch import nn

from support.runs import interrupted, tiny, train, weights
from trainlattice import Callback, Options, register_dataset, register_loss, register_model
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import ConfigError, PluginError

pytestmark = pytest.mark.torch
DEVICES = []


class WidthOptions(Options):
    width: int = 4
    outputs: int = 3
    reads_values: bool = False


@register_model("no_contract", options=WidthOptions)
class NoContract(nn.Module):
    """States nothing about its shapes, and notes the device of every forward pass."""

    def __init__(self, options):
        super().__init__()
        self.layer = nn.Linear(options.width, options.outputs)
        self.reads_values = options.reads_values

    def forward(self, x):
        DEVICES.append(x.device.type)
        if self.reads_values and x.sum().item() > 1e9:
            raise AssertionError
        return self.layer(x)


@pytest.fixture(autouse=True)
def no_devices():
    DEVICES.clear()


def no_contract(**options):
    return {"name": "no_contract", **options}


class AtStart(Callback):
    """What the probe did before the first step."""

    def on_run_start(self, trainer):
        self.devices = list(DEVICES)
        self.model = trainer.parts.models["model"]
        self.weights = {k: v.clone() for k, v in self.model.state_dict().items()}


def refused(config, tmp_path):
    with pytest.raises(ConfigError) as raised:
        train(config, tmp_path)
    assert not (tmp_path / "runs").exists()
    (diagnostic,) = raised.value.diagnostics
    return diagnostic


def test_a_model_that_fits_is_tried_on_the_meta_device_only(tmp_path):
    start = AtStart()
    train(tiny(model=no_contract()), tmp_path, extra_callbacks=[start])
    assert start.devices == ["meta"]
    assert next(start.model.parameters()).device.type == "cpu"


def test_a_model_that_does_not_fit_its_dataset_is_refused_before_a_run_exists(tmp_path):
    found = refused(tiny(model=no_contract(width=5)), tmp_path)
    assert found.path == "model"
    assert "model 'local:no_contract' and dataset 'datasets:synthetic' do not fit" in found.message
    assert "input [2, 4] float32, target [2] int64" in found.message
    assert "mat1 and mat2 shapes cannot be multiplied (2x4 and 5x3)" in found.message


def test_a_classifier_with_another_number_of_outputs_than_classes_is_refused(tmp_path):
    """Cross entropy itself takes more outputs than classes, and fails on fewer only when it meets them."""
    for outputs in (2, 4):
        found = refused(tiny(model=no_contract(outputs=outputs)), tmp_path)
        assert f"shape [2, {outputs}], and 3 classes need [2, 3]" in found.message


def test_a_model_that_cannot_run_on_the_meta_device_is_tried_with_a_real_batch(tmp_path):
    start = AtStart()
    result = train(tiny(model=no_contract(reads_values=True)), tmp_path, extra_callbacks=[start])
    assert start.devices == ["meta", "cpu"]
    assert result.status == "finished"


def test_such_a_model_is_refused_too_where_it_does_not_fit(tmp_path):
    found = refused(tiny(model=no_contract(reads_values=True, width=5)), tmp_path)
    assert "do not fit" in found.message


def test_a_loss_that_cannot_take_the_batch_is_refused(tmp_path):
    """Predictions [2, 1] and targets [2] would broadcast."""

    @register_dataset("flat_targets")
    def build():
        return Splits(TensorData(torch.ones(6, 4), torch.ones(6)))

    config = tiny(
        model=no_contract(outputs=1),
        dataset={"name": "flat_targets", "batch_size": 2},
        loss={"name": "mse"},
    )
    found = refused(config, tmp_path)
    assert "predictions have the shape [2, 1] and targets [2]: they must be equal" in found.message


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ((torch.ones(4), torch.tensor(0), torch.tensor(1)), "this dataset yields a list of 3"),
        (torch.ones(4), "the loss 'cross_entropy' needs the key 'target'; the batch has 'input'"),
        (
            {"image": torch.ones(4), "target": torch.tensor(0)},
            "the model needs the key 'input'; the batch has",
        ),
        ({"input": torch.ones(4)}, "the loss 'cross_entropy' needs the key 'target'; the batch has 'input'"),
    ],
)
def test_a_batch_of_a_form_that_nothing_can_take_is_refused(tmp_path, sample, says):
    class Samples:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return sample

    @register_dataset("odd_samples")
    def build():
        return Splits(Samples())

    found = refused(tiny(model=no_contract(), dataset={"name": "odd_samples"}), tmp_path)
    assert says in found.message


def test_a_model_that_returns_no_tensor_is_refused(tmp_path):
    @register_model("returns_a_dict")
    class ReturnsADict(NoContract):
        def __init__(self):
            super().__init__(WidthOptions())

        def forward(self, x):
            return {"logits": super().forward(x)}

    @register_loss("takes_anything")
    def takes_anything():
        return lambda pred, target: pred["logits"].sum()

    config = tiny(model={"name": "returns_a_dict"}, loss={"name": "takes_anything"})
    assert "the model returned a dict, and the loss takes a tensor" in refused(config, tmp_path).message


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda pred, target: nn.functional.cross_entropy(pred, target, reduction="none"), r"shape [2]"),
        (lambda pred, target: 0.5, "type float"),
    ],
)
def test_a_loss_that_returns_no_scalar_is_refused(tmp_path, loss, says):
    @register_loss("no_scalar")
    def build():
        return loss

    found = refused(tiny(loss={"name": "no_scalar"}), tmp_path)
    assert f"the loss 'no_scalar' returned a value of {says}, expected a scalar tensor" in found.message


def test_a_dataset_of_one_sample_is_probed_with_it(tmp_path):
    train(tiny(model=no_contract(), dataset={"samples": 1, "batch_size": 1}), tmp_path)


def test_a_model_that_cannot_be_built_is_named_with_its_plugin(tmp_path):
    @register_model("cannot_be_built")
    class CannotBeBuilt(nn.Module):
        def __init__(self):
            raise OSError("no weights here")

    with pytest.raises(
        PluginError, match=r"'local:cannot_be_built' .* could not be built: OSError: no weights"
    ):
        train(tiny(model={"name": "cannot_be_built"}), tmp_path)
    assert not (tmp_path / "runs").exists()


def test_weights_are_those_of_a_model_built_right_after_seeding(tmp_path):
    """Whatever the probe built and drew before, with torch or with Python's generator."""

    @register_model("drawn")
    class Drawn(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            nn.init.constant_(self.layer.bias, random.random())

        def forward(self, x):
            return self.layer(x)

    start = AtStart()
    train(tiny(model={"name": "drawn"}), tmp_path, extra_callbacks=[start])
    random.seed(42)
    torch.manual_seed(42)
    fresh = nn.Linear(4, 3)
    assert torch.equal(start.weights["layer.weight"], fresh.weight)
    assert torch.equal(start.weights["layer.bias"], torch.full((3,), random.random()))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_model_gets_its_shapes_from_the_probe_and_resumes(tmp_path):
    @register_model("lazy_layers")
    def build():
        return nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))

    config = tiny(model={"name": "lazy_layers"})
    start = AtStart()
    whole = train(config, tmp_path, extra_callbacks=[start]).run_dir
    assert start.weights["0.weight"].shape == (5, 4)
    first = interrupted(config, tmp_path, epochs=1)
    second = train(config, tmp_path, resume=first).run_dir
    for key, value in weights(whole).items():
        assert torch.equal(weights(second)[key], value)


def test_the_probe_does_not_change_buffers(tmp_path):
    start = AtStart()

    @register_model("normed")
    def build():
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    train(tiny(model={"name": "normed"}), tmp_path, extra_callbacks=[start])
    assert start.weights["0.num_batches_tracked"].item() == 0


def test_equal_seeds_give_equal_runs_and_other_seeds_others(tmp_path):
    first, again, other = (
        weights(train(tiny(experiment={"seed": seed}), tmp_path).run_dir) for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)
