"""``validate``: every mistake, its code, and nothing else happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli import run_cli
from support.configs import TINY, write_tiny
from support.distributions import fake_plugin, registration

WRONG = TINY.replace("name: mlp", "name: mpl").replace("epochs: 2", "epochs: two") + "modle: {}\n"


def test_a_valid_file_exits_with_0_and_names_what_would_run(cli: Callable, tmp_path: Path):
    said = cli("validate", write_tiny(tmp_path))
    assert (said.code, said.err) == (0, "")
    for part in ("tiny.yaml is valid", "model models:mlp", "dataset datasets:synthetic", "optimizers:adamw"):
        assert part in said.out


def test_every_mistake_is_shown_and_the_code_is_2(cli: Callable, tmp_path: Path):
    said = cli("validate", write_tiny(tmp_path, WRONG))
    assert (said.code, said.out) == (2, "")
    places = [line.split()[1] for line in said.err.splitlines() if line.startswith("  -->")]
    assert [place.rpartition("tiny.yaml")[2] for place in places] == [":6:9", ":23:11", ":25:1"]


def test_json_holds_every_mistake_with_its_place(cli: Callable, tmp_path: Path):
    said = cli("validate", write_tiny(tmp_path, WRONG), "--json")
    assert (said.code, said.err) == (2, "")
    report = json.loads(said.out)
    assert report["schema_version"] == 1
    assert report["valid"] is False
    found = [(d["code"], d["path"], d["line"], d["column"]) for d in report["diagnostics"]]
    assert found == [
        ("unknown-component", "model.name", 6, 9),
        ("wrong-type", "trainer.epochs", 23, 11),
        ("unknown-section", "modle", 25, 1),
    ]
    assert report["diagnostics"][0]["suggestion"] == "did you mean 'mlp'?"
    assert report["diagnostics"][0]["file"].endswith("tiny.yaml")


def test_json_of_a_valid_file_says_so(cli: Callable, tmp_path: Path):
    said = cli("validate", write_tiny(tmp_path), "--json")
    assert (said.code, said.err) == (0, "")
    assert json.loads(said.out) == {"schema_version": 1, "valid": True, "diagnostics": []}


def test_json_of_a_file_that_cannot_be_read_is_json_too(cli: Callable, tmp_path: Path):
    said = cli("validate", tmp_path / "absent.yaml", "--json")
    assert said.code == 2
    (found,) = json.loads(said.out)["diagnostics"]
    assert "absent.yaml" in found["message"] or "absent.yaml" in str(found["file"])


def test_a_plugin_at_fault_exits_with_3_unless_there_are_other_mistakes(tmp_path: Path):
    fake_plugin(tmp_path / "site", "acme", "raise SystemExit('no licence')\n")
    text = TINY.replace("name: mlp", "name: acme:net")
    path = write_tiny(tmp_path, text)
    done = run_cli("validate", path, cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 3
    assert "SystemExit: no licence" in done.stderr
    write_tiny(tmp_path, text + "modle: {}\n")
    assert run_cli("validate", path, cwd=tmp_path, site=tmp_path / "site").returncode == 2


def test_a_deprecation_is_a_warning_on_stderr_and_an_entry_in_json(tmp_path: Path):
    declared = "Component('model', 'net', 'json:JSONDecoder', deprecated='since 0.3: use newer_net')"
    fake_plugin(tmp_path / "site", "acme", registration(declared))
    (tmp_path / "my.yaml").write_text("dataset: synthetic\nmodel: net\n")
    done = run_cli("validate", "my.yaml", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "is valid" in done.stdout
    assert "deprecated" not in done.stdout
    assert "warning[deprecated]: model 'acme:net' is deprecated: since 0.3: use newer_net" in done.stderr
    assert "my.yaml:2:8" in done.stderr
    done = run_cli("validate", "my.yaml", "--json", cwd=tmp_path, site=tmp_path / "site")
    report = json.loads(done.stdout)
    assert (done.returncode, report["valid"], done.stderr) == (0, True, "")
    assert [(d["code"], d["level"], d["line"]) for d in report["diagnostics"]] == [
        ("deprecated", "warning", 2)
    ]


def test_overrides_are_checked_like_the_file(cli: Callable, tmp_path: Path):
    path = write_tiny(tmp_path)
    assert cli("validate", path, "--set", "optimizer=sgd", "--set", "optimizer.lr=3e-4").code == 0
    said = cli("validate", path, "--set", "optimizer.lrr=3e-4")
    assert said.code == 2
    assert "--set:1:1" in said.err
    assert "did you mean 'lr'?" in said.err


def test_local_files_provide_components(cli: Callable, tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "from trainlattice import register_model\n\n\n@register_model('net')\ndef net(options): ...\n"
    )
    (tmp_path / "my.yaml").write_text("dataset: synthetic\nmodel: net\n")
    assert cli("validate", tmp_path / "my.yaml").code == 2
    said = cli("validate", tmp_path / "my.yaml", "--plugin", tmp_path / "mine.py")
    assert said.code == 0
    assert "model local:net" in said.out


@pytest.mark.parametrize("requirement", ["trainlattice-plugin-vision>=0.3", "trainlattice-core>=99"])
def test_a_required_distribution_that_is_not_there_exits_with_3_and_the_pip_line(
    cli: Callable, tmp_path: Path, requirement: str
):
    path = write_tiny(tmp_path, TINY + f"plugins:\n  require: ['{requirement}']\n")
    said = cli("validate", path)
    assert said.code == 3
    assert f"python -m pip install '{requirement}'" in said.err
    assert cli("validate", write_tiny(tmp_path, TINY + "plugins: {require: [trainlattice-core]}\n")).code == 0


@pytest.mark.parametrize("text", [TINY, WRONG])
def test_nothing_is_created(cli: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.chdir(tmp_path)
    path = write_tiny(tmp_path, text)
    cli("validate", path)
    assert list(tmp_path.iterdir()) == [path]
