"""What a run says about itself and how it ended."""

import json
import subprocess
from datetime import datetime

import pytest
import torch

from support.configs import write_tiny
from support.runs import InterruptAfter, interrupted, manifest, run_dirs, tiny, train
from trainlattice import Callback, run_from_file
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


def test_the_commit_of_the_working_directory_is_recorded(tmp_path, monkeypatch):
    repository = tmp_path / "repository"
    repository.mkdir()
    monkeypatch.chdir(repository)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q"], check=True)
    (repository / "f").write_text("1")
    subprocess.run(["git", "add", "f"], check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "one"], check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()

    clean = manifest(train(tiny(), tmp_path).run_dir)
    assert (clean["git_commit"], clean["git_dirty"]) == (head, False)
    (repository / "f").write_text("2")
    assert manifest(train(tiny(), tmp_path).run_dir)["git_dirty"] is True


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
