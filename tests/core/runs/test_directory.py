"""Run directories."""

import re

import pytest

from support.configs import TINY, write_tiny
from support.runs import assert_identical, checkpoint, digests, run_dirs, tiny, train
from trainlattice import resolve_file, run_from_file
from trainlattice.diagnostics.errors import ConfigError, TrainLatticeError

pytestmark = pytest.mark.torch


def test_a_run_directory_holds_the_documented_files(tmp_path):
    run = train(tiny(), tmp_path).run_dir
    assert re.fullmatch(r"\d{8}-\d{6}_tiny", run.name)
    assert sorted(digests(run)) == [
        "checkpoints/best.pt",
        "checkpoints/index.json",
        "checkpoints/last.pt",
        "config.yaml",
        "environment.json",
        "manifest.json",
        "metrics.jsonl",
    ]


def test_runs_of_one_second_get_directories_of_their_own(tmp_path):
    made = [train(tiny(trainer={"epochs": 1}), tmp_path).run_dir for _ in range(4)]
    assert len(set(made)) == 4
    assert set(run_dirs(tmp_path)) == set(made)


def test_the_stored_configuration_reloads_to_the_same_values_and_types(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = TINY + "scheduler:\n  name: step_decay\n  step_size: 2\n"
    source = resolve_file(write_tiny(tmp_path, text)).config.as_plain()
    run = run_from_file(write_tiny(tmp_path, text)).run_dir
    monkeypatch.chdir("/")
    stored = resolve_file(run / "config.yaml").config.as_plain()
    assert stored == source
    assert stored["model"]["name"] == "models:mlp"
    assert stored["optimizer"]["eps"] == 1e-8
    assert stored["experiment"]["runs_dir"] == str(tmp_path / "runs")


def test_the_stored_configuration_trains_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run_from_file(write_tiny(tmp_path)).run_dir
    second = run_from_file(first / "config.yaml").run_dir
    assert_identical(checkpoint(first), checkpoint(second))


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("größe 中文", "_größe 中文"),
        ("a/b\\c:d", "_a-b-c-d"),
        ("../escape", "_-escape"),
        ("..", "_experiment"),
        ("x" * 200, "_" + "x" * 120),
        ("é" * 200, "_" + "é" * 60),
    ],
)
def test_any_name_gives_a_directory_below_runs_dir(tmp_path, name, ends):
    run = train(tiny(experiment={"name": name}, trainer={"epochs": 1}), tmp_path).run_dir
    assert run.parent == tmp_path / "runs"
    assert run.name.endswith(ends)
    assert run.is_dir()


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x00"])
def test_a_name_that_nobody_could_read_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="a name must have visible characters"):
        train(tiny(experiment={"name": name}), tmp_path)


def test_missing_parents_of_runs_dir_are_made(tmp_path):
    run = train(tiny(trainer={"epochs": 1}), tmp_path / "a b" / "c=d").run_dir
    assert run.parent == tmp_path / "a b" / "c=d" / "runs"


def test_a_runs_dir_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "runs").write_text("a file, not a directory")
    with pytest.raises(TrainLatticeError) as raised:
        train(tiny(), tmp_path)
    text = str(raised.value)
    assert f"no run directory can be made in {tmp_path / 'runs'} (experiment.runs_dir)" in text
    assert (tmp_path / "runs").read_text() == "a file, not a directory"


def test_a_runs_dir_below_a_file_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainLatticeError, match=r"no run directory can be made in .*Not a directory"):
        train(tiny(), tmp_path / "file")


def test_local_component_files_are_copied_and_the_copy_is_enough_to_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "from trainlattice import register_model\n"
        "@register_model('mine_alone')\n"
        "def build():\n"
        "    return nn.Linear(4, 3)\n"
    )
    text = TINY.replace(
        "  name: mlp\n  input_dim: 4\n  hidden_dims: [8]\n  num_classes: 3\n", "  name: mine_alone\n", 1
    )
    text += "plugins:\n  local: [mine.py]\n"
    first = run_from_file(write_tiny(tmp_path, text)).run_dir
    (tmp_path / "mine.py").unlink()
    assert (first / "local" / "mine.py").is_file()
    second = run_from_file(first / "config.yaml").run_dir
    assert digests(first)["checkpoints/best.pt"] != ""
    assert (second / "local" / "mine.py").read_bytes() == (first / "local" / "mine.py").read_bytes()
