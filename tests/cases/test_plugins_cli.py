"""Known failures of other tools' plugins and command lines, as tests: B65, B67, B69 (in part) and B72."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import run_cli
from support.configs import TINY, write_tiny
from support.distributions import fake_distribution, fake_plugin, registration

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.layer = nn.Linear(4, options.width)

    def forward(self, x):
        return self.layer(x)
"""
OPTIONS = "from trainlattice import Options\n\n\nclass NetOptions(Options):\n    width: int = 3\n"


def provider(site: Path, plugin: str, name: str) -> None:
    """An installed plugin with a model that trains."""
    package = f"trainlattice_plugin_{plugin}"
    declared = f"Component('model', {name!r}, '{package}.model:Net', options='{package}.options:NetOptions')"
    fake_plugin(site, plugin, registration(declared), {"model.py": NET, "options.py": OPTIONS})


def with_model(model: str) -> str:
    return TINY.replace("name: mlp\n  input_dim: 4\n  hidden_dims: [8]\n  num_classes: 3", f"name: '{model}'")


# --- B65: a plugin that fails to import kills every command ---------------------------------------


@pytest.fixture(scope="module")
def broken_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("b65") / "site"
    provider(site, "good", "good_net")
    fake_plugin(site, "imports", "raise ImportError('libfoo.so')")
    fake_plugin(site, "exits", "raise SystemExit(3)")
    fake_plugin(site, "raises", "raise RuntimeError('not on this machine')")
    fake_distribution(
        site,
        "no-object",
        entry_points={"trainlattice.plugins": {"no_object": "no_object.plugin:hooks"}},
        files={"no_object/plugin.py": ""},
    )
    return site


def test_b65_help_and_list_work_and_mark_what_failed_with_the_reason(broken_site: Path, tmp_path: Path):
    assert run_cli("--help", cwd=tmp_path, site=broken_site).returncode == 0
    done = run_cli("plugins", "list", cwd=tmp_path, site=broken_site)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    statuses = {line.split()[0]: line.split()[2] for line in done.stdout.splitlines() if "wheel" in line}
    assert statuses["good"] == "ok"
    for plugin, reason in {
        "imports": "ImportError: libfoo.so",
        "exits": "SystemExit: 3",
        "raises": "RuntimeError: not on this machine",
        "no_object": "has no attribute 'hooks'",
    }.items():
        assert statuses[plugin] == "broken"
        (line,) = [line for line in done.stderr.splitlines() if f" {plugin} (" in line]
        assert reason in line


@pytest.mark.torch
def test_b65_training_with_the_good_plugin_works(broken_site: Path, tmp_path: Path):
    write_tiny(tmp_path, with_model("good_net"))
    done = run_cli("train", "tiny.yaml", cwd=tmp_path, site=broken_site)
    assert (done.returncode, done.stderr) == (0, "")


def test_b65_a_configuration_that_asks_for_a_broken_one_fails_clearly(broken_site: Path, tmp_path: Path):
    write_tiny(tmp_path, with_model("raises:net"))
    done = run_cli("train", "tiny.yaml", cwd=tmp_path, site=broken_site)
    assert done.returncode == 3
    assert "trainlattice-plugin-raises 0.1" in done.stderr
    assert "RuntimeError: not on this machine" in done.stderr
    assert "Traceback" not in done.stderr


# --- B67: who wins a name depends on the order ----------------------------------------------------


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_b67_a_duplicate_name_is_an_error_in_either_install_order(tmp_path: Path, order: tuple[str, str]):
    sites = []
    for plugin in order:
        provider(tmp_path / plugin, plugin, "my_model")
        provider(tmp_path / plugin, f"{plugin}_adam", "mlp")
        sites.append(str(tmp_path / plugin))
    write_tiny(tmp_path, with_model("my_model"))
    both = Path(os.pathsep.join(sites))
    listed = json.loads(run_cli("plugins", "list", "--json", cwd=tmp_path, site=both).stdout)
    messages = [problem["message"] for problem in listed["problems"]]
    assert any(
        "model 'my_model'" in text and "one:my_model" in text and "two:my_model" in text for text in messages
    )
    assert any("model 'mlp'" in text and "models:mlp" in text and "one_adam:mlp" in text for text in messages)
    done = run_cli("train", "tiny.yaml", cwd=tmp_path, site=both)
    assert done.returncode == 2
    for plugin in order:
        assert f"trainlattice-plugin-{plugin} 0.1" in done.stderr
        assert str(tmp_path / plugin / f"trainlattice_plugin_{plugin}" / "plugin.py") in done.stderr
    write_tiny(tmp_path, with_model("two:my_model"))
    done = run_cli("validate", "tiny.yaml", cwd=tmp_path, site=both)
    assert "model two:my_model" in done.stdout


def test_b67_a_built_in_name_is_not_taken_over(tmp_path: Path):
    provider(tmp_path / "site", "greedy", "mlp")
    write_tiny(tmp_path)
    done = run_cli("train", "tiny.yaml", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 2
    assert "greedy:mlp" in done.stderr
    assert "models:mlp" in done.stderr


def test_b67_names_that_differ_only_by_case_cannot_be_declared(tmp_path: Path):
    provider(tmp_path / "site", "lower", "my_model")
    provider(tmp_path / "site", "upper", "My_Model")
    done = run_cli("plugins", "list", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "model 'My_Model': a name has lower-case letters" in done.stderr
    write_tiny(tmp_path, with_model("my_model"))
    assert run_cli("validate", "tiny.yaml", cwd=tmp_path, site=tmp_path / "site").returncode == 0


# --- B69: exit codes; those of signals at a step boundary wait ------------------------------------

ACT = """
import os
import signal

from trainlattice import Callback, Options, register_callback


class ActOptions(Options):
    act: str


@register_callback("act", options=ActOptions)
class Act(Callback):
    def __init__(self, options):
        self.act = options.act

    def on_epoch_end(self, trainer, metrics):
        if trainer.state.epoch == 2 and self.act == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if trainer.state.epoch == 2 and self.act == "raise":
            raise ValueError("the sky is falling")
"""


def train(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    write_tiny(directory)
    (directory / "act.py").write_text(ACT)
    return run_cli(
        "train", "tiny.yaml", "--plugin", "act.py", "--set", "trainer.epochs=3", *arguments, cwd=directory
    )


def checkpoints(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("runs/*/checkpoints/*.pt")}


@pytest.mark.torch
def test_b69_success_and_early_stop_exit_with_0(tmp_path: Path):
    stopping = "trainer.early_stopping={patience: 0, min_delta: 1000}"
    done = train(tmp_path, "--set", stopping)
    assert done.returncode == 0
    assert "early stopping" in done.stdout
    assert "epoch 3/3" not in done.stdout


@pytest.mark.torch
def test_b69_an_exception_in_a_callback_exits_with_1(tmp_path: Path):
    done = train(tmp_path, "--set", "callbacks=[{name: act, act: raise}]")
    assert done.returncode == 1
    assert "ValueError: the sky is falling" in done.stderr
    assert {"last.pt", "emergency.pt"} <= checkpoints(tmp_path)


@pytest.mark.torch
def test_b69_an_interrupt_exits_with_130_and_keeps_the_last_checkpoint(tmp_path: Path):
    done = train(tmp_path, "--set", "callbacks=[{name: act, act: interrupt}]")
    assert done.returncode == 128 + signal.SIGINT
    assert "Traceback" not in done.stderr
    assert "last.pt" in checkpoints(tmp_path)
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    assert json.loads(manifest.read_text())["status"] == "interrupted"


@pytest.mark.parametrize("mistake", [["--nonsense"], ["--set", "trainer.epochs=many"], ["--set", "epochs"]])
def test_b69_a_usage_error_exits_with_2(tmp_path: Path, mistake: list[str]):
    assert train(tmp_path, *mistake).returncode == 2


def test_b69_a_plugin_error_exits_with_3(tmp_path: Path):
    (tmp_path / "bad.py").write_text("1 / 0\n")
    assert train(tmp_path, "--plugin", "bad.py").returncode == 3


@pytest.mark.torch
def test_b69_a_closed_stdout_pipe_ends_the_run_and_keeps_the_checkpoint(tmp_path: Path):
    """As ``train ... | head -1`` does: the reader goes away after the first epoch was written."""
    write_tiny(tmp_path)
    command = [sys.executable, "-m", "trainlattice", "train", "tiny.yaml", "--set", "trainer.epochs=1000"]
    run = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in run.stdout:
        if line.startswith("epoch    3/1000"):
            break
    run.stdout.close()
    errors = run.stderr.read()
    run.stderr.close()
    assert run.wait(timeout=60) == 1
    assert "Traceback" not in errors
    assert "last.pt" in checkpoints(tmp_path)
    (directory,) = (tmp_path / "runs").iterdir()
    epoch = json.loads((directory / "manifest.json").read_text())["epoch"]
    assert 2 <= epoch < 1000
    done = run_cli("resume", directory, "--set", f"trainer.epochs={epoch + 1}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


# --- B72: paths -----------------------------------------------------------------------------------


@pytest.mark.torch
def test_b72_any_legal_path_works_from_another_directory_and_in_the_c_locale(tmp_path: Path):
    locale = {"LANG": "C", "LC_ALL": "", "PYTHONIOENCODING": ""}
    import torch

    project, elsewhere = tmp_path / "my project #1", tmp_path / "else where"
    data = project / "data #1 é"
    data.mkdir(parents=True)
    elsewhere.mkdir()
    for split in ("train.pt", "validation.pt"):
        torch.save({"features": torch.randn(20, 4), "labels": torch.arange(20) % 3}, data / split)
    text = TINY.replace("runs_dir: runs", "runs_dir: 'r un=1,é新/[x] %d {y}'").replace(
        "name: synthetic\n  batch_size: 8\n  samples: 20\n  val_samples: 10\n  input_shape: [4]",
        f"name: tensor\n  batch_size: 8\n  root: '{data}'",
    )
    (project / "my cfg.yaml").write_text(text, encoding="utf-8")
    done = run_cli("train", "../my project #1/my cfg.yaml", cwd=elsewhere, env=locale)
    assert done.returncode == 0, done.stderr
    assert "UnicodeEncodeError" not in done.stderr
    (run,) = (elsewhere / "r un=1,é新" / "[x] %d {y}").iterdir()
    assert {path.name for path in elsewhere.rglob("*.pt")} == {"last.pt", "best.pt"}
    (run / "checkpoints" / "last.pt").rename(run / "checkpoints" / "-best.pt")
    more = ("--set", "trainer.epochs=3")
    done = run_cli("resume", *more, "--", "-best.pt", cwd=run / "checkpoints", env=locale)
    assert done.returncode == 0, done.stderr
    assert run_cli("plugins", "list", cwd=run, env=locale).returncode == 0
