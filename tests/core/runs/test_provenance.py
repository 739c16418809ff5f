"""A resume compares the plugins of a checkpoint with those that are installed now."""

import importlib
import logging
import shutil
import sys

import pytest

from support.distributions import fake_plugin
from support.runs import checkpoint, interrupted, manifest, tiny, train
from trainlattice import resume_run
from trainlattice.diagnostics.errors import ConfigError, PluginError

pytestmark = pytest.mark.torch
PLUGIN = """
from trainlattice.plugin import Component, hookimpl

@hookimpl
def trainlattice_components():
    package = "trainlattice_plugin_acme"
    return [Component("model", "acme_net", f"{package}.model:build", options=f"{package}.options:NetOptions")]
"""
OPTIONS = """
from trainlattice.contracts.options import Options

class NetOptions(Options):
    width: int = 4
"""
MODEL = """
from torch import nn

def build(options):
    return nn.Linear(options.width, 3)
"""
CONFIG = tiny(model={"name": "acme_net"})


class Site:
    """A directory of installed distributions, with pip's part played by hand."""

    def __init__(self, directory):
        self.directory = directory

    def install(self, version="0.1", options=OPTIONS):
        self.uninstall()
        fake_plugin(self.directory, "acme", PLUGIN, {"options.py": options, "model.py": MODEL})
        made = self.directory / "trainlattice_plugin_acme-0.1.dist-info"
        metadata = (made / "METADATA").read_text().replace("Version: 0.1", f"Version: {version}")
        (made / "METADATA").write_text(metadata)
        made.rename(self.directory / f"trainlattice_plugin_acme-{version}.dist-info")
        importlib.invalidate_caches()

    def uninstall(self):
        for path in self.directory.iterdir():
            shutil.rmtree(path)
        for name in [name for name in sys.modules if name.startswith("trainlattice_plugin_acme")]:
            del sys.modules[name]
        importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path, monkeypatch):
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    held = Site(directory)
    held.install()
    yield held
    held.uninstall()


def test_a_component_of_an_installed_plugin_trains_and_resumes(tmp_path, site):
    run = interrupted(CONFIG, tmp_path, epochs=1)
    record = manifest(run)["components"][1]
    assert (record["name"], record["distribution"], record["version"]) == (
        "acme:acme_net",
        "trainlattice-plugin-acme",
        "0.1",
    )
    assert record["file"] == str(site.directory / "trainlattice_plugin_acme" / "model.py")
    assert train(CONFIG, tmp_path, resume=run).epoch == 2
    assert resume_run(run).epoch == 2


def test_a_missing_plugin_stops_a_resume_with_the_pip_line(tmp_path, site):
    run = interrupted(CONFIG, tmp_path, epochs=1)
    site.uninstall()
    for path in (run, run / "checkpoints" / "last.pt"):
        with pytest.raises(PluginError) as raised:
            resume_run(path)
        assert raised.value.exit_code == 3
        assert "needs trainlattice-plugin-acme, which is not installed" in str(raised.value)
        assert "python -m pip install 'trainlattice-plugin-acme==0.1'" in str(raised.value)


def test_the_configuration_alone_says_what_is_missing_too(tmp_path, site):
    site.uninstall()
    with pytest.raises(ConfigError, match="acme_net"):
        train(CONFIG, tmp_path)


def test_changed_options_stop_a_resume_with_the_pip_line(tmp_path, site):
    run = interrupted(CONFIG, tmp_path, epochs=1)
    site.install("0.2", OPTIONS + "    depth: int = 1\n")
    for resume in (lambda: train(CONFIG, tmp_path, resume=run), lambda: resume_run(run)):
        with pytest.raises(PluginError) as raised:
            resume()
        assert "the options of model 'acme:acme_net' are not those of" in str(raised.value)
        assert "written with 0.1, now 0.2" in str(raised.value)
        assert "python -m pip install 'trainlattice-plugin-acme==0.1'" in str(raised.value)


def test_an_option_that_is_gone_stops_a_resume_with_the_pip_line(tmp_path, site):
    """The stored configuration itself is then no longer valid."""
    run = interrupted(CONFIG, tmp_path, epochs=1)
    site.install("0.2", OPTIONS.replace("width: int = 4", "size: int = 4"))
    with pytest.raises(PluginError) as raised:
        resume_run(run)
    assert "width" in str(raised.value)
    assert "python -m pip install 'trainlattice-plugin-acme==0.1'" in str(raised.value)


def test_a_changed_default_is_a_changed_schema(tmp_path, site):
    run = interrupted(CONFIG, tmp_path, epochs=1)
    site.install("0.2", OPTIONS.replace("int = 4", "int = 5"))
    with pytest.raises(PluginError, match="the options of model 'acme:acme_net'"):
        resume_run(run)


def test_a_changed_version_alone_is_a_notice(tmp_path, site, caplog):
    run = interrupted(CONFIG, tmp_path, epochs=1)
    site.install(
        "0.2",
        OPTIONS.replace("width: int = 4", 'width: int = Field(4, description="units")').replace(
            "from trainlattice", "from pydantic import Field\nfrom trainlattice", 1
        ),
    )
    with caplog.at_level(logging.WARNING, logger="trainlattice"):
        result = train(CONFIG, tmp_path, resume=run)
    assert result.epoch == 2
    assert "trainlattice-plugin-acme is 0.2, and" in caplog.text
    assert "was written with 0.1" in caplog.text
    assert checkpoint(result.run_dir)["components"][1]["version"] == "0.2"
