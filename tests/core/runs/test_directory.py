"""Run directories."""

import hashlib
import re
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest

from support.by_hand import line
from support.configs import TINY, write_tiny
from support.runs import assert_identical, checkpoint, digests, manifest, run_dirs, tiny, train
from trainlattice import resolve_file, resume_run, run_from_file
from trainlattice.diagnostics.errors import ConfigError, TrainLatticeError
from trainlattice.runs import directory
from trainlattice.runs.listing import list_runs

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


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_the_copy_of_a_local_file_is_what_was_executed_whatever_became_of_the_file(tmp_path, change):
    """It is edited or deleted while the run is built. The manifest identifies what was executed too."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from pathlib import Path\n"
        "from torch import nn\n"
        "from trainlattice import register_model\n"
        f"@register_model('mine_{change}')\n"
        "def build():\n"
        f"    file = Path({str(file)!r})\n"
        + ("    file.write_text('edited')\n" if change == "edited" else "    file.unlink(missing_ok=True)\n")
        + "    return nn.Linear(4, 3)\n"
    )
    executed = file.read_bytes()
    config = {**tiny(model={"name": f"mine_{change}"}), "plugins": {"local": [str(file)]}}
    run = train(config, tmp_path).run_dir
    assert (run / "local" / "mine.py").read_bytes() == executed
    assert not file.exists() or file.read_text() == "edited"
    (local,) = [plugin for plugin in manifest(run)["plugins"] if plugin["id"] == "local"]
    assert local["sha256"] == hashlib.sha256(executed).hexdigest()
    assert resume_run(run, overrides=["trainer.epochs=3"]).epoch == 3


# --- made whole


@pytest.fixture
def noon(monkeypatch):
    """The clock stands still."""

    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 10, 4, 12, 0, 0, tzinfo=tz)

    monkeypatch.setattr(directory, "datetime", Noon)


@pytest.mark.usefixtures("noon")
def test_runs_of_the_very_same_second_are_numbered(tmp_path):
    for _ in range(3):
        train(line(experiment={"name": "x"}), tmp_path)
    names = [f"20261004-120000_x{number}" for number in ("", "-2", "-3")]
    assert [run.name for run in run_dirs(tmp_path)] == names
    assert [manifest(run)["status"] for run in run_dirs(tmp_path)] == ["finished"] * 3


@pytest.mark.usefixtures("noon")
def test_two_that_are_made_at_the_same_instant_get_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = resolve_file(write_tiny(tmp_path)).config
    both, made = threading.Barrier(2), []

    def make(number):
        def fill(run):
            both.wait(10)  # both hidden ones are there
            run.manifest.write_text(str(number))

        made.append((number, directory.create(config, fill)))

    threads = [threading.Thread(target=make, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run.path.name for _, run in made) == ["20261004-120000_tiny", "20261004-120000_tiny-2"]
    assert all(run.manifest.read_text() == str(number) for number, run in made)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("no")]
)
def test_what_goes_wrong_before_a_directory_has_its_name_leaves_none(tmp_path, monkeypatch, error):
    monkeypatch.chdir(tmp_path)
    config = resolve_file(write_tiny(tmp_path)).config

    def fill(run):
        (run.path / "half").write_text("half")
        raise error

    expected = TrainLatticeError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as raised:
        directory.create(config, fill)
    if isinstance(error, OSError):
        assert str(raised.value).endswith("_tiny cannot be written: No space left on device")
    assert list(Path(config.experiment.runs_dir).iterdir()) == []


KILLED = """
import os, sys
from trainlattice.runs import execute

def kill(*arguments):
    os.kill(os.getpid(), 9)

execute.write_durably = kill  # the environment is the last file that a new directory gets
from trainlattice import run_from_file
run_from_file("tiny.yaml")
"""


def test_a_kill_before_a_directory_has_its_name_leaves_a_hidden_one_that_nobody_sees(tmp_path, monkeypatch):
    write_tiny(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -9, done.stderr
    (hidden,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"\.\d{8}-\d{6}_tiny\.\d+\.tmp", hidden.name)
    assert (hidden / "manifest.json").is_file()
    assert list_runs(tmp_path / "runs") == []
    monkeypatch.chdir(tmp_path)
    run = run_from_file("tiny.yaml").run_dir
    assert [found.name for found in list_runs(tmp_path / "runs")] == [run.name]
    assert manifest(run)["status"] == "finished"
    assert not run.name.startswith(".")
