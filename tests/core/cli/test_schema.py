"""``schema``: JSON alone on stdout or in a file, whatever plugins are installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from support.cli import run_cli
from support.distributions import fake_plugin, registration
from trainlattice.contracts.metric_records import records_schema


def test_the_schema_is_written_to_a_file_or_to_stdout(cli: Callable, tmp_path: Path):
    printed = cli("schema")
    written = cli("schema", "-o", tmp_path / "my schema é.json")
    assert (printed.code, printed.err, written.code) == (0, "", 0)
    assert (tmp_path / "my schema é.json").read_text(encoding="utf-8") == printed.out
    assert "my schema é.json" in written.out
    assert "model" in json.loads(printed.out)["properties"]


def test_a_place_that_cannot_be_written_is_an_error_without_a_traceback(cli: Callable, tmp_path: Path):
    said = cli("schema", "-o", tmp_path / "nowhere" / "schema.json")
    assert said.code == 2
    assert "nowhere" in said.err
    assert "cannot be written" in said.err
    assert "Traceback" not in said.err


def test_a_component_that_cannot_be_read_is_left_out_with_a_warning(tmp_path: Path):
    declared = [
        "Component('model', 'bad', 'a.b:C', options='nowhere_to_be_found:Options')",
        "Component('model', 'good', 'a.b:C')",
    ]
    fake_plugin(tmp_path / "site", "acme", registration(*declared))
    done = run_cli("schema", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    names = json.dumps(json.loads(done.stdout))
    assert '"acme:good"' in names
    assert '"acme:bad"' not in names
    assert "warning: the options of model 'acme:bad'" in done.stderr


def test_a_kind_of_a_plugin_is_a_section_of_the_schema(tmp_path: Path):
    declared = "Component('robot', 'arm', 'a.b:C')"
    fake_plugin(tmp_path / "site", "acme", registration(declared, kinds=["Kind('robot', 'robot')"]))
    done = run_cli("schema", cwd=tmp_path, site=tmp_path / "site")
    assert "robot" in json.loads(done.stdout)["properties"]


def test_a_kind_whose_settings_do_not_exist_hides_no_other(tmp_path: Path):
    kind = "Kind('robot', 'robot', settings='nowhere_to_be_found:Settings')"
    fake_plugin(tmp_path / "site", "acme", registration("Component('robot', 'arm', 'a.b:C')", kinds=[kind]))
    done = run_cli("schema", cwd=tmp_path, site=tmp_path / "site")
    assert done.returncode == 0
    assert "model" in json.loads(done.stdout)["properties"]
    assert "nowhere_to_be_found" in done.stderr


def test_the_schema_of_records_is_the_one_that_runs_follow(cli: Callable, tmp_path: Path):
    printed = cli("schema", "--records")
    assert (printed.code, printed.err) == (0, "")
    assert json.loads(printed.out) == records_schema()
    assert cli("schema", "--records", "-o", tmp_path / "records.json").code == 0
    assert (tmp_path / "records.json").read_text(encoding="utf-8") == printed.out
