"""What a run says about itself and how it ended."""

import json
import os
import shutil
import subprocess
from datetime import datetime

import pytest
import torch

from support.configs import write_tiny
from support.runs import InterruptAfter, interrupted, manifest, run_dirs, tiny, train
from trainlattice import Callback, run_from_file
from trainlattice.diagnostics.errors import TrainLatticeError
from trainlattice.runs.manifest import status_of
from trainlattice.runs.process import this_process
from trainlattice.version import __version__

pytestmark = pytest.mark.torch


class Status(Callback):
    def on_run_start(self, trainer):
        self.running = json.loads((trainer.run_dir / "manifest.json").read_text(encoding="utf-8"))


def test_a_finished_run(tmp_path):
    result = train(tiny(), tmp_path, command="trainlattice train tiny.yaml")
    found = manifest(result.run_dir)
    assert found["status"] == "finished"
    assert (found["name"], found["seed"], found["trainlattice"]) == ("tiny", 42, __version__)
    assert found["command"] == "trainlattice train tiny.yaml"
    assert (found["epoch"], found["global_step"]) == (2, 6)
    assert (found["best_metric"], found["best_epoch"]) == (result.best_metric, result.best_epoch)
    assert found["resumed_from"] is None
    created, started, finished = (
        datetime.fromisoformat(found[k]) for k in ("created", "started", "finished")
    )
    assert created <= started <= finished
    assert created.tzinfo is not None


def test_a_run_under_way_says_so(tmp_path):
    seen = Status()
    train(tiny(), tmp_path, extra_callbacks=[seen])
    assert seen.running["status"] == "running"
    assert "finished" not in seen.running
    assert status_of(seen.running) == ("running", "")


def test_the_process_of_a_run_is_recorded(tmp_path):
    found = manifest(train(tiny(), tmp_path).run_dir)
    assert found["process"] == this_process()
    assert found["process"]["pid"] == os.getpid()
    assert set(found["process"]) == {"pid", "started", "host", "boot_id", "pid_namespace"}


def test_a_failed_run_says_why_and_how_far_it_came(tmp_path):
    class Fails(Callback):
        def on_step_end(self, trainer):
            if trainer.state.global_step == 5:
                raise ValueError("not a number: ü")

    with pytest.raises(ValueError, match="not a number"):
        train(tiny(), tmp_path, extra_callbacks=[Fails()])
    found = manifest(run_dirs(tmp_path)[0])
    assert found["status"] == "failed"
    assert found["error"] == {"type": "ValueError", "message": "not a number: ü"}
    assert (found["epoch"], found["global_step"]) == (1, 5)


def test_an_interrupted_run_says_so(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(tiny(), tmp_path, extra_callbacks=[InterruptAfter(1)])
    found = manifest(run_dirs(tmp_path)[0])
    assert (found["status"], found["epoch"], found["global_step"]) == ("interrupted", 1, 3)


class Removes(Callback):
    """The run directory, in one of its methods."""

    def __init__(self, method):
        self.method = method

    def on_step_end(self, trainer):
        if self.method == "on_step_end":
            shutil.rmtree(trainer.run_dir)
            raise ValueError("the reason")

    def finalize(self, trainer, error):
        if self.method == "finalize":
            shutil.rmtree(trainer.run_dir)


def test_a_manifest_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(
        TrainLatticeError, match=r"manifest\.json could not be written: No such file"
    ) as raised:
        train(tiny(), tmp_path, extra_callbacks=[Removes("finalize")])
    assert raised.value.exit_code == 1
    assert str(tmp_path / "runs") in str(raised.value)


def test_a_manifest_that_cannot_be_written_does_not_hide_the_error_that_ended_the_run(tmp_path, caplog):
    with pytest.raises(ValueError, match="the reason"):
        train(tiny(), tmp_path, extra_callbacks=[Removes("on_step_end")])
    assert "the manifest still says that the run is under way: " in caplog.text
    assert "manifest.json could not be written: No such file" in caplog.text


def test_a_resumed_run_names_the_checkpoint_that_it_continues(tmp_path):
    run = interrupted(tiny(), tmp_path, epochs=1)
    found = manifest(train(tiny(), tmp_path, resume=run).run_dir)
    assert found["resumed_from"] == str(run / "checkpoints" / "last.pt")
    assert (found["epoch"], found["global_step"]) == (2, 6)


def test_every_component_is_recorded_with_its_provenance(tmp_path):
    found = manifest(train(tiny(), tmp_path).run_dir)
    by_section = {record["section"]: record for record in found["components"]}
    assert list(by_section) == ["mode", "model", "dataset", "loss", "optimizer", "callbacks.0"]
    model = by_section["model"]
    assert (model["name"], model["distribution"]) == ("models:mlp", "trainlattice-plugin-models")
    assert model["version"] == "0.1.0"
    assert len(model["schema_sha256"]) == 64
    assert found["model_source"]["module"] == "trainlattice_plugin_models.mlp:MLP"
    for section in ("dataset", "loss", "optimizer"):
        assert f"{section}_source" in found
    assert {plugin["id"] for plugin in found["plugins"]} >= {"core", "models", "datasets"}


def test_the_source_of_a_component_is_the_file_of_its_code(tmp_path):
    found = manifest(train(tiny(), tmp_path).run_dir)
    assert found["model_source"]["file"].endswith("mlp.py")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit, in which runs are started."""
    directory = tmp_path / "repository"
    directory.mkdir()
    monkeypatch.chdir(directory)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    (directory / "f").write_text("1")
    (directory / ".gitignore").write_text("ignored\n")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *command], check=True)
    return directory


def git_entries(directory, runs=None):
    found = manifest(train(tiny(), runs or directory.parent).run_dir)
    return {key.removeprefix("git_"): value for key, value in found.items() if key.startswith("git_")}


def test_the_commit_of_the_working_directory_is_recorded(repository):
    head = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    commit = head.stdout.strip()
    assert git_entries(repository) == {"commit": commit, "dirty": False, "diff_sha256": None}
    (repository / "f").write_text("2")
    found = git_entries(repository)
    assert (found["commit"], found["dirty"]) == (commit, True)


def test_uncommitted_changes_are_identified(repository):
    def change(name, text):
        (repository / name).write_text(text)
        return git_entries(repository)["diff_sha256"]

    found = [change("f", "2"), change("f", "3"), change("new", "1"), change("new", "2"), change("newer", "2")]
    assert len(set(found)) == 5
    assert all(len(digest) == 64 for digest in found)
    assert change("ignored", "1") == found[-1]
    (repository / "below").mkdir()
    os.chdir(repository / "below")
    assert git_entries(repository)["diff_sha256"] == found[-1]
    (repository / "newer").unlink()
    assert change("new", "1") == found[2]


def test_untracked_runs_do_not_change_what_identifies_the_changes(repository):
    (repository / "f").write_text("2")
    first = git_entries(repository, runs=repository)
    assert first["diff_sha256"] is not None
    assert git_entries(repository, runs=repository) == first


def test_looking_at_a_repository_leaves_its_index_alone(repository):
    """git would write it anew, under a lock that a kill leaves behind, for a file that was only touched."""
    os.utime(repository / "f", (1e9, 1e9))
    index = (repository / ".git" / "index").read_bytes()
    assert git_entries(repository)["dirty"] is False
    (repository / "f").write_text("2")
    assert git_entries(repository)["dirty"] is True
    assert (repository / ".git" / "index").read_bytes() == index


@pytest.mark.parametrize("name", ["f", "untracked"])
def test_changes_that_are_too_large_are_not_read(repository, name):
    (repository / name).write_bytes(os.urandom(11 * 2**20))
    found = git_entries(repository)
    assert (found["dirty"], found["diff_sha256"]) == (True, None)
    assert found["diff_note"] == "the changes have more than 10 MiB"


def test_outside_a_repository_there_is_no_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = manifest(run_from_file(write_tiny(tmp_path)).run_dir)
    assert (found["git_commit"], found["git_dirty"]) == (None, None)
    assert found["working_directory"] == str(tmp_path)


def test_the_environment_is_recorded(tmp_path):
    run = train(tiny(trainer={"device": "cpu"}), tmp_path).run_dir
    found = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    assert found["torch"] == torch.__version__
    assert found["torch_threads"] == torch.get_num_threads()
    assert found["device"] == "cpu"
    assert {"python", "platform", "machine", "cuda", "cpu_count", "packages"} <= set(found)
    assert found["cpu_usable"] == len(os.sched_getaffinity(0))
    assert found["torch_interop_threads"] == torch.get_num_interop_threads()


def test_what_changes_a_computation_from_outside_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        run = train(tiny(), tmp_path).run_dir
    finally:
        torch.use_deterministic_algorithms(False)
    found = json.loads((run / "environment.json").read_text(encoding="utf-8"))
    assert found["variables"]["OMP_NUM_THREADS"] == "3"
    assert found["variables"]["PYTHONHASHSEED"] is None
    assert found["cudnn_benchmark"] is True
    assert found["deterministic_algorithms"] is True
    assert found["deterministic_warn_only"] is True
    assert found["float32_matmul_precision"] == "highest"
