"""The command line as a whole: help, version, mistakes, commands of plugins, completion, streams."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from support.cli import run_cli
from support.configs import TINY, write_tiny
from support.distributions import fake_distribution
from trainlattice.cli.main import COMMANDS

REPOSITORY = Path(__file__).parents[3]
PATHS = ["", *COMMANDS, "plugins list", "plugins info"]

# --- help and version -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_the_help_of_every_command_has_an_example_of_it(cli: Callable, path: str):
    said = cli(*path.split(), "--help")
    assert said.code == 0
    assert said.err == ""
    example = " ".join(said.out.partition("Example: ")[2].split())
    assert example.startswith(f"trainlattice {path}".strip())


@pytest.mark.parametrize("path", PATHS)
def test_a_short_h_is_the_same_as_help(cli: Callable, path: str):
    assert cli(*path.split(), "-h").out == cli(*path.split(), "--help").out


@pytest.mark.parametrize("path", ["validate", "plugins", "plugins list", "plugins info", "schema"])
def test_the_example_in_the_help_works_as_it_stands(
    cli: Callable, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "configs").symlink_to(REPOSITORY / "configs", target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    example = " ".join(cli(*path.split(), "--help").out.partition("Example: ")[2].split())
    assert cli(*shlex.split(example)[1:]).code == 0


def test_help_lists_every_command_with_what_it_does(cli: Callable):
    out = cli("--help").out
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", out, re.MULTILINE)


def test_the_version_is_that_of_the_distribution(tmp_path: Path):
    done = run_cli("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert metadata.version("trainlattice-core") in done.stdout


def test_the_installed_command_is_the_module_that_python_m_runs():
    (script,) = metadata.entry_points(group="console_scripts", name="trainlattice")
    assert script.value == "trainlattice.cli.main:main"


def test_without_a_command_the_commands_are_shown(cli: Callable):
    said = cli()
    assert said.code == 2
    assert "validate" in said.out + said.err


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian", "x.yaml"], "train"),
        (["plugins", "lst"], "list"),
        (["validate", "x.yaml", "--jsn"], "--json"),
        (["train"], "CONFIG"),
        (["resume"], "RUN_OR_CHECKPOINT"),
        (["plugins", "info"], "NAME"),
        (["validate", "a.yaml", "b.yaml"], "b.yaml"),
        (["train", "x.yaml", "--set"], "--set"),
        (["--jsn"], "--jsn"),
    ],
)
def test_a_command_line_that_cannot_be_understood_exits_with_2(
    cli: Callable, arguments: list[str], said: str
):
    result = cli(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert said in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("command", ["train", "validate"])
def test_a_file_that_is_not_there_exits_with_2_in_one_line(cli: Callable, command: str, tmp_path: Path):
    said = cli(command, tmp_path / "absent.yaml")
    assert said.code == 2
    assert "absent.yaml" in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_resuming_what_is_not_there_exits_with_2(cli: Callable, tmp_path: Path):
    said = cli("resume", tmp_path / "absent")
    assert said.code == 2
    assert "does not exist" in said.err


@pytest.mark.parametrize("before", [True, False])
def test_a_traceback_is_shown_only_on_demand(cli: Callable, tmp_path: Path, before: bool):
    path = write_tiny(tmp_path, "modell: mlp\n")
    assert "Traceback" not in cli("validate", path).err
    arguments = ["--traceback", "validate", path] if before else ["validate", path, "--traceback"]
    said = cli(*arguments)
    assert said.code == 2
    assert "Traceback" in said.err
    assert "unknown section 'modell'" in said.err


# --- commands of plugins --------------------------------------------------------------------------

COMMAND = """
import click


@click.command()
@click.option("--times", type=int, default=1)
@click.pass_context
def acme(ctx, times):
    '''Does what acme does.'''
    click.echo("acme " * times)
    ctx.exit(5)
"""


def install_command(site: Path, source: str, name: str = "acme", distribution: str = "acme-dist") -> None:
    package = distribution.replace("-", "_")
    fake_distribution(
        site,
        distribution,
        entry_points={"trainlattice.commands": {name: f"{package}.cli:acme"}},
        files={f"{package}/cli.py": source},
    )


def test_commands_of_plugins_are_listed_from_metadata_and_not_imported(tmp_path: Path):
    install_command(tmp_path / "site", "raise AssertionError('imported')")
    done = run_cli("--help", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert re.search(r"^  acme +from acme-dist$", done.stdout, re.MULTILINE)
    assert run_cli("schema", "--help", cwd=tmp_path, site=tmp_path / "site").returncode == 0


def test_a_command_of_a_plugin_is_a_command_like_any_other(tmp_path: Path):
    site = tmp_path / "site"
    install_command(site, COMMAND)
    done = run_cli("acme", "--times", "2", cwd=tmp_path, site=site)
    assert (done.returncode, done.stdout, done.stderr) == (5, "acme acme \n", "")
    assert "Does what acme does." in run_cli("acme", "--help", cwd=tmp_path, site=site).stdout
    assert run_cli("acme", "--times", "x", cwd=tmp_path, site=site).returncode == 2
    assert "acme" in run_cli("acmee", cwd=tmp_path, site=site).stderr


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('libfoo.so')", "ImportError: libfoo.so"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import nowhere_to_be_found", "No module named 'nowhere_to_be_found'"),
        ("", "has no attribute 'acme'"),
        ("def acme():\n    pass", "is no click command"),
    ],
)
def test_a_broken_command_of_a_plugin_is_named_with_its_cause(tmp_path: Path, source: str, said: str):
    install_command(tmp_path / "site", source)
    done = run_cli("acme", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 3
    assert "'acme' of acme-dist" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_command_that_two_distributions_provide_names_both(tmp_path: Path):
    site = tmp_path / "site"
    install_command(site, COMMAND)
    install_command(site, COMMAND, distribution="other-dist")
    assert run_cli("--help", cwd=tmp_path, site=site).returncode == 0
    done = run_cli("acme", cwd=tmp_path, site=site)
    assert done.returncode == 3
    assert "acme-dist 0.1 and other-dist 0.1" in done.stderr


def test_no_plugin_takes_the_place_of_a_command_of_core(tmp_path: Path):
    install_command(tmp_path / "site", COMMAND, name="validate")
    done = run_cli("validate", write_tiny(tmp_path), cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "is valid" in done.stdout


# --- completion -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_gets_a_completion_script(tmp_path: Path, shell: str):
    done = run_cli(cwd=tmp_path, env={"_TRAINLATTICE_COMPLETE": f"{shell}_source"})
    assert done.returncode == 0
    assert f"_TRAINLATTICE_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("trainlattice pl", "plugins"),
        ("trainlattice plugins li", "list"),
        ("trainlattice train --res", "--resume"),
    ],
)
def test_commands_and_options_are_completed(tmp_path: Path, words: str, offered: str):
    env = {
        "_TRAINLATTICE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    done = run_cli(cwd=tmp_path, env=env)
    assert f"plain,{offered}" in done.stdout.split()


# --- streams --------------------------------------------------------------------------------------


def on_a_terminal(directory: Path, *arguments: str, **environment: str) -> str:
    """What a terminal that is the standard error of a command shows."""
    pty = pytest.importorskip("pty", reason="terminals of this kind are of Unix")
    ours, theirs = pty.openpty()
    try:
        env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | environment
        command = [sys.executable, "-m", "trainlattice", *arguments]
        subprocess.run(command, cwd=directory, env=env, stdout=theirs, stderr=theirs, timeout=60, check=False)
        return os.read(ours, 100_000).decode()
    finally:
        os.close(theirs)
        os.close(ours)


def test_colour_is_for_terminals_and_not_where_no_color_is_set(tmp_path: Path):
    path = write_tiny(tmp_path, "modell: mlp\n")
    assert "\x1b[" in on_a_terminal(tmp_path, "validate", path.name)
    assert "\x1b[" not in on_a_terminal(tmp_path, "validate", path.name, NO_COLOR="1")
    assert "\x1b[" in on_a_terminal(tmp_path, "validate", path.name, NO_COLOR="")  # as no-color.org has it
    piped = run_cli("validate", path.name, cwd=tmp_path)
    assert "unknown section 'modell'" in piped.stderr
    assert "\x1b[" not in piped.stderr


@pytest.mark.parametrize(
    "arguments", [["--help"], ["plugins", "list"], ["plugins", "list", "--json"], ["schema"]]
)
def test_a_reader_that_goes_away_ends_a_command_in_silence(tmp_path: Path, arguments: list[str]):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainlattice", *arguments],
            cwd=tmp_path,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.returncode == 1
    assert done.stderr == ""


C_LOCALES = [
    {"LANG": "C"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii"},
]


@pytest.mark.parametrize("locale", C_LOCALES)
def test_any_locale_can_show_any_name(tmp_path: Path, locale: dict[str, str]):
    path = write_tiny(tmp_path, name="größe 漢字.yaml")
    env = {"PYTHONIOENCODING": "", "LC_ALL": "", **locale}
    done = run_cli("validate", path.name, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    path.write_text(TINY.replace("name: mlp", "name: größe"), encoding="utf-8")
    done = run_cli("validate", path.name, cwd=tmp_path, env=env)
    assert done.returncode == 2
    assert "no model is named" in done.stderr
    assert "UnicodeEncodeError" not in done.stderr
