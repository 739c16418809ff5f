"""Lifecycle hooks: told to the plugins that a run uses, once each, with the documented arguments."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.configs import TINY, write_tiny
from support.distributions import fake_plugin, registration
from trainlattice.plugin.lifecycle import RunInfo, RunOutcome

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from trainlattice import run_from_file  # noqa: E402

HOOKS = """
calls = []


@hookimpl
def trainlattice_run_created(run):
    calls.append(("created", run))


@hookimpl
def trainlattice_run_finished(run, outcome):
    calls.append(("finished", run, outcome))


@hookimpl
def trainlattice_run_failed(run, error):
    calls.append(("failed", run, error))
"""

WATCH = """
from trainlattice import Callback, Options


class Watch(Options):
    fail_with: str = ""


class Watcher(Callback):
    def __init__(self, options):
        self.options = options

    def on_epoch_end(self, trainer, metrics):
        if self.options.fail_with:
            raise getattr(__import__("builtins"), self.options.fail_with)("no more")
"""


def install(site: Path, name: str, hooks: str = HOOKS) -> None:
    """A plugin with a callback of its own name and lifecycle hooks that note their calls."""
    code = f"trainlattice_plugin_{name}.code"
    declared = f"Component('callback', {name!r}, '{code}:Watcher', options='{code}:Watch')"
    fake_plugin(site, name, registration(declared) + hooks, {"code.py": WATCH})
    importlib.invalidate_caches()


def calls(name: str) -> list[Any]:
    return sys.modules[f"trainlattice_plugin_{name}.plugin"].calls


def with_callbacks(directory: Path, *callbacks: str) -> Path:
    return write_tiny(directory, TINY + f"callbacks: [{', '.join(callbacks)}]\n")


def manifest(runs: Path) -> dict[str, Any]:
    (path,) = runs.glob("*/manifest.json")
    return json.loads(path.read_text())


@pytest.fixture(autouse=True)
def _in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_plugin_of_the_run_is_told_of_its_beginning_and_its_end(site: Path, tmp_path: Path):
    install(site, "watch")
    result = run_from_file(with_callbacks(tmp_path, "watch"))
    (created, run), (finished, again, outcome) = calls("watch")
    assert (created, finished) == ("created", "finished")
    assert again is run
    assert isinstance(run, RunInfo)
    assert run.directory == result.run_dir
    assert run.name == "tiny"
    assert run.resumed_from is None
    assert run.config["model"]["name"] == "models:mlp"
    assert run.config["callbacks"] == [{"name": "watch:watch", "fail_with": ""}]
    assert outcome == RunOutcome(
        status="finished",
        reason=None,
        epoch=2,
        global_step=6,  # 20 samples in batches of 8 are 3 steps an epoch
        best_metric=result.best_metric,
        best_epoch=result.best_epoch,
    )


def test_a_resumed_run_knows_the_checkpoint_that_it_continues(site: Path, tmp_path: Path):
    install(site, "watch")
    config = with_callbacks(tmp_path, "watch")
    first = run_from_file(config)
    run_from_file(config, resume=first.run_dir, overrides=["trainer.epochs=3"])
    run, outcome = calls("watch")[-1][1:]
    assert run.resumed_from == first.run_dir / "checkpoints" / "last.pt"
    assert (outcome.epoch, outcome.global_step) == (3, 9)


def test_a_plugin_that_the_run_does_not_use_hears_nothing(site: Path, tmp_path: Path):
    install(site, "watch")
    install(site, "bystander")
    run_from_file(with_callbacks(tmp_path, "watch"))
    assert calls("bystander") == []


def test_plugins_are_told_in_the_order_of_the_sections(site: Path, tmp_path: Path):
    hook = "\n\n@hookimpl\ndef trainlattice_run_created(run):\n    calls.append(__name__)\n"
    install(site, "alpha", "calls = []\n" + hook)
    install(site, "omega", "from trainlattice_plugin_alpha.plugin import calls\n" + hook)
    run_from_file(with_callbacks(tmp_path, "omega", "alpha"))
    assert calls("alpha") == ["trainlattice_plugin_omega.plugin", "trainlattice_plugin_alpha.plugin"]


@pytest.mark.parametrize(
    ("error", "status"), [("ValueError", "failed"), ("KeyboardInterrupt", "interrupted")]
)
def test_a_plugin_is_told_of_a_failure_with_the_error_that_is_raised(
    site: Path, tmp_path: Path, error: str, status: str
):
    install(site, "watch")
    with pytest.raises(BaseException, match="no more") as caught:
        run_from_file(with_callbacks(tmp_path, f"{{name: watch, fail_with: {error}}}"))
    assert type(caught.value).__name__ == error
    assert [call[0] for call in calls("watch")] == ["created", "failed"]
    assert calls("watch")[-1][2] is caught.value
    assert manifest(tmp_path / "runs")["status"] == status


def test_a_hook_that_fails_at_the_beginning_ends_the_run_before_its_first_step(site: Path, tmp_path: Path):
    hooks = HOOKS + "\n\n@hookimpl\ndef trainlattice_run_created(run):\n    raise OSError('no quota')\n"
    install(site, "watch", hooks)
    with pytest.raises(OSError, match="no quota"):
        run_from_file(with_callbacks(tmp_path, "watch"))
    record = manifest(tmp_path / "runs")
    assert (record["status"], record["global_step"]) == ("failed", 0)
    assert record["error"] == {"type": "OSError", "message": "no quota"}
    assert not list(tmp_path.glob("runs/*/checkpoints/*.pt"))


def test_a_hook_that_fails_at_the_end_leaves_the_run_finished(site: Path, tmp_path: Path):
    hooks = (
        HOOKS + "\n\n@hookimpl\ndef trainlattice_run_finished(run, outcome):\n    raise OSError('no mail')\n"
    )
    install(site, "watch", hooks)
    with pytest.raises(OSError, match="no mail"):
        run_from_file(with_callbacks(tmp_path, "watch"))
    assert manifest(tmp_path / "runs")["status"] == "finished"
    assert list(tmp_path.glob("runs/*/checkpoints/last.pt"))


def test_a_hook_that_fails_on_a_failure_does_not_hide_the_first_error(
    site: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    hooks = HOOKS + "\n\n@hookimpl\ndef trainlattice_run_failed(run, error):\n    raise OSError('no mail')\n"
    install(site, "watch", hooks)
    with pytest.raises(ValueError, match="no more"):
        run_from_file(with_callbacks(tmp_path, "{name: watch, fail_with: ValueError}"))
    assert "no mail" in caplog.text


def test_the_run_records_where_each_component_comes_from(site: Path, tmp_path: Path):
    install(site, "watch")
    run_from_file(with_callbacks(tmp_path, "watch"))
    record = manifest(tmp_path / "runs")
    component = next(c for c in record["components"] if c["kind"] == "callback")
    assert component["name"] == "watch:watch"
    assert component["section"] == "callbacks.0"
    assert component["distribution"] == "trainlattice-plugin-watch"
    assert component["version"] == "0.1"
    assert component["module"] == "trainlattice_plugin_watch.code:Watcher"
    assert component["file"] == str(site / "trainlattice_plugin_watch" / "code.py")
    assert {plugin["id"] for plugin in record["plugins"]} == {
        "core",
        "models",
        "datasets",
        "losses",
        "optimizers",
        "watch",
    }
    assert all(plugin["source"] in ("wheel", "editable") for plugin in record["plugins"])
