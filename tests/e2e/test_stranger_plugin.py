"""The plugin of docs/plugins.md: built as a wheel, installed, used, resumed, uninstalled."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import run_cli

DOCS = Path(__file__).parents[2] / "docs" / "plugins.md"


def files_of_the_page() -> dict[str, str]:
    """Code blocks whose first line names a file; the section about the packaged plugin."""
    page = DOCS.read_text(encoding="utf-8")
    section = page[page.index("## A plugin") : page.index("### Rules")]
    return dict(re.findall(r"```\w+\n# ([\w.]+)\n(.*?)```", section, flags=re.DOTALL))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the plugin as pip installs its wheel."""
    pytest.importorskip("torch")
    pytest.importorskip("hatchling", reason="builds a wheel without the network")
    project = tmp_path_factory.mktemp("outside") / "trainlattice-plugin-acme"
    package = project / "src" / "trainlattice_plugin_acme"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, text in files_of_the_page().items():
        ((project if name.endswith((".toml", ".yaml")) else package) / name).write_text(
            text, encoding="utf-8"
        )
    wheels, target = project / "dist", project.parent / "site"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *offline, "--no-build-isolation", "-w", wheels, project], check=True, timeout=120
    )
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([*pip, "install", *offline, "--target", target, wheel], check=True, timeout=120)
    shutil.copy(project / "acme.yaml", project.parent / "acme.yaml")
    return target


def test_a_strangers_plugin_is_listed_trains_resumes_and_is_missed(site: Path) -> None:
    home = site.parent
    listed = run_cli("plugins", "list", "--json", cwd=home, site=site)
    (plugin,) = [p for p in json.loads(listed.stdout)["plugins"] if p["id"] == "acme"]
    assert plugin["status"] == "ok"
    assert plugin["source"] == "wheel"
    assert set(plugin["components"]) == {"model", "dataset", "loss", "callback"}

    trained = run_cli("train", "acme.yaml", "--set", "trainer.epochs=1", cwd=home, site=site)
    assert trained.returncode == 0, trained.stderr
    (run,) = (home / "runs").iterdir()
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["model_source"]["module"] == "trainlattice_plugin_acme.model:AcmeMLP"
    (recorded,) = [p for p in manifest["plugins"] if p["id"] == "acme"]
    assert recorded["distribution"] == "trainlattice-plugin-acme"
    assert recorded["version"] == "0.1.0"
    assert recorded["source"] == "wheel"
    assert len(recorded["sha256"]) == 64

    resumed = run_cli("resume", run, "--set", "trainer.epochs=5", cwd=home, site=site)
    assert resumed.returncode == 0, resumed.stderr
    assert "validation accuracy reached 0.95" in resumed.stdout  # its callback stopped the run

    gone = run_cli("train", "acme.yaml", cwd=home)
    assert gone.returncode == 2
    for name in ("acme_mlp", "acme_blobs", "acme_margin", "acme_goal"):
        assert f"named '{name}'" in gone.stderr
    assert "python -m pip install trainlattice-plugin-" in gone.stderr

    missed = run_cli("resume", run, cwd=home)
    assert missed.returncode == 3
    assert "python -m pip install 'trainlattice-plugin-acme==0.1.0'" in missed.stderr
