"""Finding plugins by metadata: each distribution once, damaged ones passed over, nothing imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.distributions import fake_distribution, fake_plugin, registration
from trainlattice.plugin.discovery import PLUGIN_GROUP, declarations
from trainlattice.plugin.registry import Registry

Installed = Callable[[], Registry]
MODEL = "Component('model', 'net', 'acme_code:Net')"


def egg_info(directory: Path, name: str, version: str, entry_points: str) -> None:
    """What ``setup.py develop`` leaves beside a source tree."""
    info = directory / f"{name.replace('-', '_')}.egg-info"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_declarations_are_sorted_and_nothing_is_imported(site: Path):
    for name in ("zebra", "acme"):
        fake_plugin(site, name, "raise AssertionError('imported')")
    found = [d for d in declarations(PLUGIN_GROUP) if d.name in ("zebra", "acme")]
    assert [(d.name, d.distribution_name, d.version) for d in found] == [
        ("acme", "trainlattice-plugin-acme", "0.1"),
        ("zebra", "trainlattice-plugin-zebra", "0.1"),
    ]


def test_the_first_of_two_installations_of_one_distribution_counts(
    site: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
):
    behind = site.with_name("behind")
    fake_plugin(site, "acme", registration(MODEL))
    fake_distribution(
        behind,
        "Trainlattice.Plugin_Acme",  # the same name to packaging tools
        version="9.9",
        entry_points={PLUGIN_GROUP: {"acme": "acme_elsewhere.plugin"}},
    )
    monkeypatch.setattr("sys.path", [str(site), str(behind), *sys.path])
    registry = installed()
    (plugin,) = registry.called("acme")
    assert plugin.version == "0.1"
    assert plugin.broken is None
    assert registry.duplicate_ids() == {}


def test_a_directory_that_is_on_the_path_twice_counts_once(
    site: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
):
    fake_plugin(site, "acme", registration(MODEL))
    alias = site.with_name("lib64")
    alias.symlink_to(site, target_is_directory=True)
    monkeypatch.setattr("sys.path", [str(site), str(alias), *sys.path])
    assert len(installed().called("acme")) == 1


def test_an_egg_info_beside_a_dist_info_is_the_same_distribution(site: Path, installed: Installed):
    fake_plugin(site, "acme", registration(MODEL))
    egg_info(
        site, "trainlattice-plugin-acme", "0.1", f"[{PLUGIN_GROUP}]\nacme = trainlattice_plugin_acme.plugin\n"
    )
    registry = installed()
    (plugin,) = registry.called("acme")
    assert plugin.broken is None
    assert len(registry.find("model", "net")) == 1


def test_a_stale_egg_info_in_front_decides_as_it_does_for_an_import(
    site: Path, installed: Installed, monkeypatch: pytest.MonkeyPatch
):
    fake_plugin(site, "acme", registration(MODEL))
    checkout = site.with_name("checkout")
    egg_info(checkout, "trainlattice-plugin-acme", "0.0.1", f"[{PLUGIN_GROUP}]\nacme = acme_old.plugin\n")
    monkeypatch.setattr("sys.path", [str(checkout), *sys.path])
    (plugin,) = installed().called("acme")
    assert plugin.version == "0.0.1"
    assert "No module named 'acme_old'" in str(plugin.broken)


def test_a_plugin_that_was_uninstalled_is_gone_at_the_next_look(site: Path, installed: Installed):
    fake_plugin(site, "acme", registration(MODEL))
    assert installed().called("acme")
    for file in sorted(site.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    assert installed().called("acme") == []


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("entry_points.txt", b"[trainlattice.plugins]\nno equals sign\n"),
        ("entry_points.txt", b"[trainlattice.plugins]\nacme = \xff\xfe\n"),
        ("entry_points.txt", b"[trainlattice.plugins]\nacme =\n"),
        ("entry_points.txt", b"[trainlattice.plugins]\nacme = not a module\n"),
        ("entry_points.txt", b"[trainlattice.plugins\nacme = acme.plugin\n"),
        ("entry_points.txt", b""),
        ("METADATA", b""),
        ("METADATA", b"Metadata-Version: 2.1\nVersion: 0.1\n"),
        ("METADATA", b"Metadata-Version: 2.1\nName: trainlattice-plugin-acme\n"),
        ("METADATA", b"\xff\xfe\x00"),
        ("METADATA", None),
        ("direct_url.json", b"[]"),
        ("direct_url.json", b"{"),
        ("direct_url.json", b'{"dir_info": null}'),
        ("direct_url.json", b'{"dir_info": {"editable": true}, "url": null}'),
        ("RECORD", None),
    ],
)
def test_damaged_metadata_of_one_distribution_leaves_the_others_usable(
    site: Path, installed: Installed, file: str, content: bytes | None
):
    fake_plugin(site, "acme", registration("Component('model', 'other', 'acme_code:Net')"))
    damaged = next(site.glob("*.dist-info")) / file
    if content is None:
        damaged.unlink()
    else:
        damaged.write_bytes(content)
    fake_plugin(site, "sound", registration(MODEL))
    registry = installed()
    assert [found.qualified for found in registry.find("model", "net")] == ["sound:net"]
    for plugin in registry.plugins:
        json.dumps([str(plugin), plugin.source, plugin.provenance.as_json()])


def test_a_distribution_without_a_version_is_listed_as_of_unknown_version(site: Path, installed: Installed):
    fake_plugin(site, "acme", registration(MODEL))
    metadata = next(site.glob("*.dist-info")) / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: trainlattice-plugin-acme\n")
    (plugin,) = installed().called("acme")
    assert plugin.version == "unknown"
