"""``plugins.require``"""

from __future__ import annotations

import pytest

from support.checking import BASE, mistake, mistakes, places, resolved, write


def requiring(tmp_path, *requirements: str):
    items = "".join(f"  - '{requirement}'\n" for requirement in requirements)
    return write(tmp_path, BASE + f"plugins:\n  require:\n{items}")


@pytest.mark.parametrize(
    "requirement",
    [
        "trainlattice-core",
        "Trainlattice_Core>=0.0.1",
        "trainlattice-core!=9",
        "none-such; python_version < '3'",
    ],
)
def test_a_requirement_that_is_met_passes(tmp_path, requirement):
    path = requiring(tmp_path, requirement.replace("'", "''"))
    assert resolved(path)["plugins"]["require"] == [requirement]


def test_a_missing_distribution_is_shown_with_the_line_that_installs_it(tmp_path):
    found = mistake(requiring(tmp_path, "trainlattice-core", "trainlattice-plugin-none>=0.3"))
    assert (found.code, places([found])) == ("missing-plugin", [("c.yaml:14:5", "plugins.require.1")])
    assert found.message == (
        "trainlattice-plugin-none is not installed, and this configuration needs trainlattice-plugin-none>=0.3"
    )
    assert found.notes == ("python -m pip install 'trainlattice-plugin-none>=0.3'",)


def test_another_version_is_shown_with_the_one_that_is_installed(tmp_path):
    found = mistake(requiring(tmp_path, "trainlattice-core>=999"))
    assert found.message.startswith("trainlattice-core is installed as ")


def test_nonsense_is_no_requirement(tmp_path):
    found = mistakes(requiring(tmp_path, "foo bar", "=3"))
    assert places(found) == [("c.yaml:13:5", "plugins.require.0"), ("c.yaml:14:5", "plugins.require.1")]
    assert found[0].message.startswith("'foo bar' is no requirement")
