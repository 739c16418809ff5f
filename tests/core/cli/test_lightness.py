"""What each command imports: reading never costs torch, and listing costs no heavy library at all."""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

from support.cli import modules_after
from support.configs import TINY, write_tiny
from support.distributions import fake_plugin, registration
from trainlattice.plugin.discovery import PLUGIN_GROUP

HEAVY = {"torch", "numpy", "pydantic", "pydantic_core", "rich", "sklearn"}
PLUGINS = sorted(entry.value for entry in metadata.entry_points(group=PLUGIN_GROUP))


def after(command: Sequence[object], cwd: Path, site: Path | None = None, code: int = 0) -> set[str]:
    """Top-level modules once a command has run in a fresh interpreter and exited with a code."""
    program = (
        "import contextlib, io\n"
        "from trainlattice.cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        f"    code = run({[str(part) for part in command]!r})\n"
        f"assert code == {code}, code\n"
    )
    return modules_after(program, cwd=cwd, site=site)


def install_strangers(site: Path) -> None:
    """Ten plugins of three components each, whose code would import what is heavy."""
    for number in range(10):
        name = f"stranger{number}"
        package = f"trainlattice_plugin_{name}"
        declared = [
            f"Component({kind!r}, 'thing{number}', '{package}.code:Thing', options='{package}.options:Thing')"
            for kind in ("model", "dataset", "loss")
        ]
        files = {
            "code.py": "import torch, numpy, rich\n\n\nclass Thing:\n    pass\n",
            "options.py": "from trainlattice import Options\n\n\nclass Thing(Options):\n    pass\n",
        }
        fake_plugin(site, name, registration(*declared), files)


def test_these_tests_would_notice_a_heavy_import(tmp_path: Path):
    assert "pydantic" in modules_after("import trainlattice; trainlattice.Options", cwd=tmp_path)


def test_importing_the_platform_imports_nothing_heavy(tmp_path: Path):
    loaded = modules_after("import trainlattice; dir(trainlattice)", cwd=tmp_path)
    assert loaded & {*HEAVY, "click", "pluggy", "yaml"} == set()


@pytest.mark.parametrize("module", [*PLUGINS, "trainlattice.plugin", "trainlattice.plugin.builtin"])
def test_a_registration_module_imports_nothing_heavy(tmp_path: Path, module: str):
    assert modules_after(f"import {module}", cwd=tmp_path) & HEAVY == set()


@pytest.mark.parametrize(
    "command",
    [["--help"], ["--version"], *([name, "--help"] for name in ("train", "plugins", "runs", "checkpoint"))],
)
def test_help_imports_no_plugin_and_nothing_heavy(tmp_path: Path, command: list[str]):
    install_strangers(tmp_path / "site")
    loaded = after(command, tmp_path, tmp_path / "site")
    assert loaded & {*HEAVY, "yaml"} == set()
    assert [name for name in loaded if name.startswith("trainlattice_plugin_")] == []


@pytest.mark.parametrize("options", [[], ["--json"], ["--kind", "model"]])
def test_listing_plugins_imports_registration_modules_and_nothing_heavy(tmp_path: Path, options: list[str]):
    install_strangers(tmp_path / "site")
    loaded = after(["plugins", "list", *options], tmp_path, tmp_path / "site")
    assert loaded & HEAVY == set()
    assert {f"trainlattice_plugin_stranger{number}" for number in range(10)} <= loaded


@pytest.mark.parametrize(
    ("text", "code"), [(TINY, 0), (TINY.replace("mlp", "mpl"), 2), ("model: [\n", 2), ("", 2)]
)
def test_validating_never_imports_torch_or_numpy(tmp_path: Path, text: str, code: int):
    install_strangers(tmp_path / "site")
    loaded = after(["validate", write_tiny(tmp_path, text)], tmp_path, tmp_path / "site", code)
    assert loaded & {"torch", "numpy", "rich", "sklearn"} == set()


@pytest.mark.parametrize("command", ["train", "resume"])
def test_a_mistake_in_a_configuration_costs_no_torch(tmp_path: Path, command: str):
    path = write_tiny(tmp_path, TINY.replace("mlp", "mpl"), "config.yaml")
    target = path if command == "train" else tmp_path  # a run directory is one with a config.yaml
    assert "torch" not in after([command, target], tmp_path, code=2)


@pytest.mark.parametrize("command", [["plugins", "info", "adamw"], ["plugins", "info", "models"], ["schema"]])
def test_explaining_imports_options_and_no_implementation(tmp_path: Path, command: list[str]):
    loaded = after(command, tmp_path)
    assert loaded & {"torch", "numpy", "rich", "sklearn"} == set()


def write_run(directory: Path, name: str, *, epoch: int = 1) -> Path:
    """What a run leaves, as far as it can be written without torch."""
    run = directory / "runs" / name
    checkpoints = run / "checkpoints"
    checkpoints.mkdir(parents=True)
    manifest = {"status": "running", "process": {"pid": 1, "host": "elsewhere"}, "components": []}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "config.yaml").write_text(TINY)
    record = {"type": "epoch", "epoch": epoch, "step": 3 * epoch, "train_loss": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    trainer = {"epoch": epoch, "global_step": 3 * epoch, "best_metric": 0.5, "best_epoch": 1}
    with zipfile.ZipFile(checkpoints / "last.pt", "w") as archive:
        archive.writestr(
            "archive/data.pkl", pickle.dumps({"format": 4, "kind": "resume", "trainer": trainer}, protocol=2)
        )
    data = (checkpoints / "last.pt").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    entry = {"sha256": digest, "size": len(data), "epoch": epoch, "global_step": 3 * epoch}
    (checkpoints / "index.json").write_text(json.dumps({"schema": 1, "files": {"last.pt": [entry]}}))
    return run


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(
    "command",
    [
        ["runs", "list"],
        ["runs", "show", "runs/a"],
        ["runs", "diff", "runs/a", "runs/b"],
        ["checkpoint", "list", "runs/a"],
        ["checkpoint", "verify", "runs/a"],
        ["checkpoint", "verify", "runs/a/checkpoints/last.pt"],
    ],
)
def test_reading_runs_and_checkpoints_imports_nothing_heavy(
    tmp_path: Path, command: list[str], options: list[str]
):
    install_strangers(tmp_path / "site")
    for name in ("a", "b"):
        write_run(tmp_path, name)
    loaded = after([*command, *options], tmp_path, tmp_path / "site")
    assert loaded & HEAVY == set()
    assert [name for name in loaded if name.startswith("trainlattice_plugin_")] == []


def test_comparing_weights_that_may_differ_needs_torch(tmp_path: Path):
    pytest.importorskip("torch")
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", epoch=2)
    assert "torch" in after(["runs", "diff", "runs/a", "runs/b"], tmp_path, code=2)
