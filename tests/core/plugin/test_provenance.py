"""Where the code of a plugin comes from: what identifies a wheel and an editable checkout."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from support.distributions import fake_plugin, registration
from trainlattice.plugin.registration import Plugin
from trainlattice.plugin.registry import Registry

Installed = Callable[[], Registry]
MODEL = "Component('model', 'net', 'acme_code:Net')"


def git(*arguments: str, cwd: Path) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    done = subprocess.run(["git", *identity, *arguments], cwd=cwd, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def install(site: Path, installed: Installed, checkout: Path | None = None) -> Plugin:
    """The plugin ``acme``: from a wheel, or from a checkout as ``pip install -e`` leaves it."""
    fake_plugin(site, "acme", registration(MODEL))
    if checkout is not None:
        direct_url = {"dir_info": {"editable": True}, "url": checkout.as_uri()}
        (next(site.glob("*.dist-info")) / "direct_url.json").write_text(json.dumps(direct_url))
    (plugin,) = installed().called("acme")
    return plugin


def test_a_wheel_is_identified_by_its_list_of_files_and_hashes(site: Path, installed: Installed):
    plugin = install(site, installed)
    record = next(site.glob("*.dist-info")) / "RECORD"
    record.write_text("acme/plugin.py,sha256=abc,12\n")
    assert plugin.source == "wheel"
    assert plugin.provenance.as_json() == {
        "source": "wheel",
        "sha256": hashlib.sha256(b"acme/plugin.py,sha256=abc,12\n").hexdigest(),
    }


def test_an_editable_checkout_is_identified_by_its_commit(site: Path, installed: Installed, tmp_path: Path):
    checkout = tmp_path / "my plugin é"  # percent-encoded in the metadata
    checkout.mkdir()
    git("init", "-q", cwd=checkout)
    (checkout / "plugin.py").write_text("")
    git("add", ".", cwd=checkout)
    git("commit", "-q", "-m", "first", cwd=checkout)
    plugin = install(site, installed, checkout)
    assert plugin.source == "editable"
    assert plugin.provenance.as_json() == {
        "source": "editable",
        "path": str(checkout),
        "commit": git("rev-parse", "HEAD", cwd=checkout),
        "dirty": False,
    }
    (checkout / "plugin.py").write_text("changed = True\n")
    (again,) = installed().called("acme")
    assert again.provenance.dirty is True


def test_an_editable_checkout_without_git_is_identified_by_its_path(
    site: Path, installed: Installed, tmp_path: Path
):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    plugin = install(site, installed, checkout)
    assert plugin.provenance.as_json() == {"source": "editable", "path": str(checkout)}


def test_an_editable_checkout_that_is_gone_is_no_error(site: Path, installed: Installed, tmp_path: Path):
    plugin = install(site, installed, tmp_path / "gone")
    assert plugin.provenance.as_json() == {"source": "editable", "path": str(tmp_path / "gone")}


def test_core_is_recorded_as_the_distribution_that_it_is(installed: Installed):
    (core,) = installed().called("core")
    assert core.distribution_name == "trainlattice-core"
    assert core.source in ("wheel", "editable")
    assert core.provenance.source == core.source
