"""``trainlattice validate``: what a person and what a program is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.checking import BASE, write
from support.cli import modules_after, run_cli
from trainlattice.cli.main import run

WRONG = BASE + "trainer:\n  epochs: true\n  log_evry: 3\n"


def validate(capsys, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``trainlattice validate`` in this process."""
    code = run(["validate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_valid_file_is_confirmed_with_the_components_it_means(tmp_path, capsys):
    path = write(tmp_path, BASE)
    code, out, err = validate(capsys, path)
    assert (code, err) == (0, "")
    (line,) = out.splitlines()
    assert line.startswith(f"{path} is valid: ")
    for name in ("models:mlp", "datasets:synthetic", "losses:cross_entropy", "optimizers:adamw"):
        assert name in line


def test_mistakes_go_to_stderr_with_exit_code_2(tmp_path, capsys):
    code, out, err = validate(capsys, write(tmp_path, WRONG))
    assert (code, out) == (2, "")
    assert err.count("error[") == 2
    assert "c.yaml:12:11   trainer.epochs" in err
    assert "c.yaml:13:3   trainer.log_evry" in err
    assert "Traceback" not in err


def test_json_stands_alone_on_stdout(tmp_path, capsys):
    path = write(tmp_path, WRONG)
    code, out, err = validate(capsys, path, "--json")
    assert (code, err) == (2, "")
    content = json.loads(out)
    assert content["valid"] is False
    assert content["schema_version"] == 1
    first, second = content["diagnostics"]
    assert first == {
        "code": "wrong-type",
        "level": "error",
        "message": "expected an integer, got the boolean true",
        "file": str(path),
        "line": 12,
        "column": 11,
        "path": "trainer.epochs",
        "suggestion": None,
        "notes": [],
        "related": [],
    }
    assert (second["code"], second["suggestion"]) == ("unknown-option", "did you mean 'log_every'?")


def test_json_of_a_valid_file_says_so(tmp_path, capsys):
    code, out, err = validate(capsys, write(tmp_path, BASE), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"schema_version": 1, "valid": True, "diagnostics": []}


@pytest.mark.parametrize("text", [None, "", "a: [", "a: 1\n---\nb: 1\n", "- a\n", b"\xff\xfea"])
def test_a_file_that_cannot_be_read_is_json_too(tmp_path, capsys, text):
    path = tmp_path / "nope.yaml" if text is None else write(tmp_path, text)
    code, out, err = validate(capsys, path, "--json")
    assert (code, err) == (2, "")
    (found,) = json.loads(out)["diagnostics"]
    assert found["level"] == "error"


def test_an_override_may_be_given_many_times(tmp_path, capsys):
    path = write(tmp_path, WRONG)
    code, _, err = validate(capsys, path, "--set", "trainer.epochs=3", "--set", "trainer.log_every=x")
    assert code == 2
    assert "   trainer.epochs" not in err
    assert "--set:2:19   trainer.log_every" in err


def test_paths_with_spaces_equals_signs_and_unicode_work(tmp_path, capsys, monkeypatch):
    write(tmp_path, BASE, "a b=c/ä 日本.yaml")
    monkeypatch.chdir(tmp_path)
    code, out, _ = validate(capsys, "a b=c/ä 日本.yaml")
    assert code == 0
    assert out.startswith("a b=c/ä 日本.yaml is valid")


def test_the_process_ends_with_the_exit_code_and_names_no_traceback(tmp_path):
    path = write(tmp_path, WRONG, "my config.yaml")
    done = run_cli("validate", path.name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "my config.yaml:12:11" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_name_that_is_no_utf8_is_shown_and_no_traceback(tmp_path):
    done = run_cli("validate", "caf\udce9.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_neither_torch_nor_numpy_is_imported(tmp_path):
    path = write(tmp_path, WRONG)
    code = f"from trainlattice.cli.main import run\nassert run(['validate', {str(path)!r}, '--json']) == 2"
    assert {"torch", "numpy", "rich"}.isdisjoint(modules_after(code, cwd=tmp_path))


@pytest.mark.parametrize("command", ["validate", "train"])
def test_nothing_is_created_for_a_file_with_mistakes(tmp_path, command):
    path = write(tmp_path, WRONG)
    done = run_cli(command, path, cwd=tmp_path)
    assert done.returncode == 2
    assert sorted(tmp_path.iterdir()) == [path]
