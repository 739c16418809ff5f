"""Any legal path is an argument: spaces, '=', brackets, other scripts, a leading dash, another directory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli import run_cli
from support.configs import TINY, write_tiny
from trainlattice.config.resolve import resolve_file
from trainlattice.diagnostics.errors import ConfigError

NAMES = [
    "my cfg.yaml",
    "epoch=6,lr=0.1.yaml",
    "größe-新.yaml",
    "[x] %d {y}.yaml",
    "#1 & 'two' \"three\".yaml",
    "no_suffix",
    "a:b.yaml",
    "~.yaml",
    "$HOME.yaml",
    "*.yaml",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_may_have_any_name(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    directory = tmp_path / f"r un=1,é新 {name}"
    directory.mkdir()
    write_tiny(directory, name=name)
    monkeypatch.chdir(directory)
    for path in (name, directory / name, Path("..", directory.name, name)):
        said = cli("validate", path)
        assert (said.code, said.err) == (0, "")
        assert f"{path} is valid" in said.out


@pytest.mark.parametrize("name", NAMES)
def test_a_mistake_is_shown_with_the_name_of_the_file_as_it_is(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    write_tiny(tmp_path, TINY.replace("mlp", "mpl"), name)
    monkeypatch.chdir(tmp_path)
    assert f"--> {name}:6:9" in cli("validate", name).err


def test_a_name_that_begins_with_a_dash_follows_two_dashes(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_tiny(tmp_path, name="-best.yaml")
    monkeypatch.chdir(tmp_path)
    assert cli("validate", "--", "-best.yaml").code == 0
    assert cli("validate", "./-best.yaml").code == 0
    assert cli("validate", "-best.yaml").code == 2


def test_a_file_with_a_leading_dash_is_shown_so_that_it_can_be_copied(
    cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_tiny(tmp_path, TINY.replace("mlp", "mpl"), "-best.yaml")
    monkeypatch.chdir(tmp_path)
    assert f"--> .{os.sep}-best.yaml:6:9" in cli("validate", "--", "-best.yaml").err


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_text_is_a_name(tmp_path: Path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/my\xff.yaml"))
    path.write_text(TINY)
    done = run_cli("validate", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    path.write_text(TINY.replace("mlp", "mpl"))
    done = run_cli("validate", path, cwd=tmp_path)
    assert done.returncode == 2
    assert "no model is named 'mpl'" in done.stderr


def test_what_a_file_extends_and_names_is_relative_to_the_file(tmp_path: Path):
    configs, elsewhere = tmp_path / "my configs", tmp_path / "else where"
    configs.mkdir()
    elsewhere.mkdir()
    write_tiny(configs, name="base=1.yaml")
    (configs / "my net.py").write_text(
        "from trainlattice import register_model\n\n\n@register_model('net')\ndef net(options): ...\n"
    )
    (configs / "b.yaml").write_text(
        "extends: base=1.yaml\nmodel:\n  name: net\nplugins:\n  local: ['my net.py']\n"
    )
    done = run_cli("validate", "../my configs/b.yaml", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    assert "model local:net" in done.stdout


def test_a_local_file_on_the_command_line_is_relative_to_the_current_directory(tmp_path: Path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "-my=net.py").write_text(
        "from trainlattice import register_model\n\n\n@register_model('net')\ndef net(options): ...\n"
    )
    (tmp_path / "configs" / "a.yaml").write_text("model: net\ndataset: synthetic\n")
    done = run_cli("validate", "configs/a.yaml", "--plugin", "-my=net.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("directory", ["my runs #2", "a: b", "[x]", "{y: 1}", "é新", "a=b", "true", "- x"])
def test_a_path_in_an_override_is_taken_as_it_was_typed(tmp_path: Path, directory: str):
    path = write_tiny(tmp_path)
    config = resolve_file(path, [f"experiment.runs_dir={directory}"]).config
    assert config.experiment.runs_dir == os.path.abspath(directory)


def test_paths_in_the_file_are_kept_as_they_are(tmp_path: Path):
    path = write_tiny(tmp_path, TINY.replace("runs_dir: runs", "runs_dir: 'r un=1,é新/[x] %d {y} #1'"))
    config = resolve_file(path).config
    assert config.experiment.runs_dir == os.path.abspath("r un=1,é新/[x] %d {y} #1")


def test_a_nul_in_a_path_is_a_mistake_and_no_traceback(tmp_path: Path):
    path = write_tiny(tmp_path, TINY + 'plugins: {local: ["a\\0b.py"]}\n')
    with pytest.raises(ConfigError) as caught:
        resolve_file(path)
    assert caught.value.exit_code in (2, 3)
