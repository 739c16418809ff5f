"""From a configuration to objects: what is refused before a run directory exists."""

import pytest
import torch
from torch import nn

from support.by_hand import line
from support.configs import TINY, write_tiny
from support.runs import assert_identical, checkpoint, manifest, rewrite, tiny, train, weights
from trainlattice import (
    OptionError,
    Options,
    register_callback,
    register_dataset,
    register_loss,
    register_model,
    register_optimizer,
    run_from_file,
)
from trainlattice.data import Splits, TensorData
from trainlattice.diagnostics.errors import ConfigError, PluginError, TrainLatticeError

pytestmark = pytest.mark.torch
DATA = TensorData(torch.zeros(4, 4), torch.zeros(4, dtype=torch.int64))
NO_DATA = TensorData(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))


def test_an_option_that_turns_out_wrong_is_shown_at_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = TINY.replace("  name: synthetic\n", "  name: tensor\n  root: nowhere\n")
    for absent in ("samples: 20", "val_samples: 10", "input_shape: [4]"):
        text = text.replace(f"  {absent}\n", "")
    with pytest.raises(ConfigError) as raised:
        run_from_file(write_tiny(tmp_path, text))
    (found,) = raised.value.diagnostics
    assert (found.path, found.mark.line) == ("dataset.root", 13)
    assert found.message == f"{tmp_path / 'nowhere'} does not exist"
    rendered = raised.value.render()
    assert "tiny.yaml:13:9" in rendered
    assert "root: nowhere" in rendered
    assert raised.value.exit_code == 2
    assert not (tmp_path / "runs").exists()


def test_an_option_error_can_point_into_a_list(tmp_path):
    class FilesOptions(Options):
        files: tuple[str, ...]

    @register_dataset("listed_files", options=FilesOptions)
    def build(options):
        raise OptionError(("files", 1), f"{options.files[1]} is no file of numbers")

    config = "dataset:\n  name: listed_files\n  files:\n    - a.bin\n    - b.bin\nmodel:\n  name: mlp\n"
    with pytest.raises(ConfigError) as raised:
        run_from_file(write_tiny(tmp_path, config))
    (found,) = raised.value.diagnostics
    assert (found.path, found.mark.line, found.mark.column) == ("dataset.files.1", 5, 7)


def test_an_option_of_another_section_given_by_set_is_shown_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as raised:
        run_from_file(
            write_tiny(tmp_path),
            overrides=["scheduler.name=warmup_cosine", "scheduler.warmup_steps=6"],
        )
    (found,) = raised.value.diagnostics
    assert found.path == "scheduler.warmup_steps"
    assert "scheduler.warmup_steps=6" in raised.value.render()
    assert "scheduler.warmup_steps (6) must be smaller than the 6 optimizer steps" in found.message
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("empty", ["train", "val"])
def test_an_empty_split_is_refused(tmp_path, empty):
    @register_dataset("half_empty")
    def build():
        return Splits(**{"train": DATA, "val": DATA, empty: NO_DATA})

    with pytest.raises(ConfigError, match=f"the {empty} split of dataset 'local:half_empty' is empty"):
        train(tiny(dataset={"name": "half_empty"}), tmp_path)
    assert not (tmp_path / "runs").exists()


def test_early_stopping_without_validation_data_is_refused(tmp_path):
    config = line(trainer={"early_stopping": {"patience": 1}})
    with pytest.raises(ConfigError, match="has no validation data to stop early on") as raised:
        train(config, tmp_path)
    assert raised.value.diagnostics[0].path == "trainer.early_stopping"
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", "cuda:7"])
def test_cuda_on_a_machine_without_it_is_refused(tmp_path, device):
    with pytest.raises(ConfigError, match=f"{device!r}: this machine has no CUDA device") as raised:
        train(tiny(trainer={"device": device}), tmp_path)
    assert raised.value.diagnostics[0].path == "trainer.device"
    assert not (tmp_path / "runs").exists()


def test_what_only_the_opened_data_shows_is_compared_with_the_model(tmp_path):
    """The tensor dataset learns its shape from its file."""
    for name in ("train.pt", "validation.pt"):
        torch.save(
            {"features": torch.zeros(4, 5), "labels": torch.zeros(4, dtype=torch.int64)}, tmp_path / name
        )
    config = tiny(dataset={"name": "tensor", "root": str(tmp_path), "num_classes": 3})
    with pytest.raises(ConfigError, match="takes 4 values per sample, dataset 'datasets:tensor' yields 5"):
        train(config, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_the_task_that_only_the_opened_data_shows_is_compared_with_the_loss(tmp_path):
    for name in ("train.pt", "validation.pt"):
        torch.save({"features": torch.zeros(4, 4), "labels": torch.zeros(4, 3)}, tmp_path / name)
    config = tiny(dataset={"name": "tensor", "root": str(tmp_path), "num_classes": 3})
    with pytest.raises(
        ConfigError, match=r"'losses:cross_entropy' is for classification, dataset .* regression"
    ):
        train(config, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_model_without_parameters_is_refused(tmp_path):
    @register_model("nothing_to_train")
    def build():
        return nn.Sequential(nn.Flatten(), nn.Softmax(1))

    config = tiny(model={"name": "nothing_to_train"}, dataset={"num_classes": 4})
    with pytest.raises(ConfigError, match="the model has no parameter to train"):
        train(config, tmp_path)


def test_only_parameters_that_require_gradients_reach_the_optimizer(tmp_path):
    @register_model("half_frozen")
    def build():
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
        model[0].requires_grad_(False)
        return model

    seen = []

    @register_optimizer("counting")
    def optimizer(params):
        seen.extend(tuple(p.shape) for p in params)
        return torch.optim.SGD(params, lr=0.1)

    train(tiny(model={"name": "half_frozen"}, optimizer={"name": "counting"}), tmp_path)
    assert seen == [(3, 4), (3,)]


def test_a_dataset_that_returns_no_splits_is_named(tmp_path):
    @register_dataset("no_splits")
    def build():
        return [1, 2, 3]

    with pytest.raises(
        PluginError, match=r"'local:no_splits' .* returned a list, expected trainlattice\.data\.Splits"
    ):
        train(tiny(dataset={"name": "no_splits"}), tmp_path)


def test_a_target_gets_the_arguments_that_it_names(tmp_path):
    got = {}

    @register_loss("curious")
    def curious(data, options):
        got["data"] = data
        return nn.functional.cross_entropy

    train(tiny(loss={"name": "curious"}), tmp_path)
    assert (got["data"].input_shape, got["data"].num_outputs) == ((4,), 3)


def test_a_target_that_asks_for_what_its_kind_does_not_have_is_named(tmp_path):
    @register_callback("greedy")
    def greedy(options, model):
        raise AssertionError

    config = {**tiny(), "callbacks": [{"name": "greedy"}]}
    with pytest.raises(
        PluginError, match="asks for the argument 'model'; a callback is called by keyword with"
    ):
        train(config, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_bare_keyword_parameter_names_nothing_and_gets_nothing(tmp_path):
    """torch.nn.Module's __init__ has one and refuses every keyword."""
    got = {}

    @register_optimizer("takes_more")
    def takes_more(params, **more):
        got.update(more)
        return torch.optim.SGD(params, lr=0.1)

    @register_model("without_init")
    class WithoutInit(nn.Module):
        def forward(self, x):
            return x

    assert train(tiny(optimizer={"name": "takes_more"}), tmp_path).status == "finished"
    assert got == {}
    config = tiny(model={"name": "without_init"}, dataset={"num_classes": 4})
    with pytest.raises(ConfigError, match="the model has no parameter to train"):
        train(config, tmp_path)


# --- the optimizer's implementation


@register_optimizer("one_kind")
def one_kind(params):
    return torch.optim.SGD(params, lr=0.1)


def test_an_implementation_that_an_optimizer_does_not_choose_is_refused_at_its_place(tmp_path):
    with pytest.raises(ConfigError, match=r"'local:one_kind'.* has one implementation only") as raised:
        train(tiny(optimizer={"name": "one_kind", "implementation": "fused"}), tmp_path)
    assert raised.value.diagnostics[0].path == "optimizer.implementation"
    assert manifest(train(tiny(optimizer={"name": "one_kind"}), tmp_path).run_dir)[
        "optimizer_implementation"
    ] == {"optimizer": None}


@pytest.mark.parametrize(
    ("asked", "chosen"), [("auto", "fused"), ("foreach", "foreach"), ("loop", "loop"), ("fused", "fused")]
)
def test_the_implementation_stands_in_the_manifest_and_in_the_checkpoint(tmp_path, asked, chosen):
    run = train(tiny(optimizer={"implementation": asked}), tmp_path).run_dir
    assert manifest(run)["optimizer_implementation"] == {"optimizer": chosen}
    assert checkpoint(run)["states"]["update/optimizer"]["implementation"] == chosen


def test_a_resumed_run_keeps_the_implementation_that_auto_chose(tmp_path):
    """Where another torch or device would choose otherwise: the last bits differ."""
    run = train(tiny(trainer={"epochs": 1}, optimizer={"implementation": "loop"}), tmp_path).run_dir
    held = checkpoint(run)
    held["config"]["optimizer"]["implementation"] = "auto"
    rewrite(run, **held)
    resumed = train(tiny(trainer={"epochs": 2}), tmp_path, resume=run)
    assert manifest(resumed.run_dir)["optimizer_implementation"] == {"optimizer": "loop"}
    straight = train(tiny(trainer={"epochs": 2}, optimizer={"implementation": "loop"}), tmp_path)
    assert_identical(weights(resumed.run_dir), weights(straight.run_dir))


def test_sparse_gradients_name_the_implementations_that_take_them(tmp_path):
    @register_model("sparse")
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 3, sparse=True)

        def forward(self, x):
            return self.table(x[:, 0].abs().long() % 8)

    config = tiny(model={"name": "sparse"}, optimizer={"name": "sgd"})
    with pytest.raises(TrainLatticeError, match=r"implementation: loop"):
        train(config, tmp_path)
    config["optimizer"]["implementation"] = "loop"
    assert train(config, tmp_path).status == "finished"
