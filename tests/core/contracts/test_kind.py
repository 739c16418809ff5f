"""Kinds, and the declaration of a component."""

from __future__ import annotations

import dataclasses

import pytest

from trainlattice.contracts.kind import ALWAYS_RESERVED, CORE_KINDS, CORE_SECTION_NAMES, NAME, Component, Kind

GOOD = Component("model", "resnet18_v2", target="pkg.module:Class", options="pkg.options:Options")


def test_a_good_declaration_has_no_problem():
    assert GOOD.problem() is None
    assert dataclasses.replace(GOOD, options=None, summary="x", deprecated="y").problem() is None


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("name", "ResNet", "lower-case letters"),
        ("name", "res-net", "lower-case letters"),
        ("name", "2d", "starts with a letter"),
        ("name", "", "lower-case letters"),
        ("name", "a:b", "lower-case letters"),
        ("name", None, "is not a string"),
        ("kind", 3, "is not a string"),
        ("target", "pkg.module", "'package.module:attribute'"),
        ("target", "pkg.module:", "'package.module:attribute'"),
        ("target", ":Class", "'package.module:attribute'"),
        ("target", "pkg/module.py:Class", "'package.module:attribute'"),
        ("target", "pkg.module:Class.method", "'package.module:attribute'"),
        ("target", print, "is not a string"),
        ("options", "pkg.options", "'package.options:Class'"),
        ("options", dict, "'package.options:Class'"),
        ("summary", None, "is not a string"),
        ("deprecated", True, "is not a string"),
        ("member_option", 1, "is not a string"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_told(field, value, says):
    assert says in dataclasses.replace(GOOD, **{field: value}).problem()


def test_declarations_and_kinds_are_immutable():
    for thing in (GOOD, CORE_KINDS[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.name = "other"


def test_kinds_of_core_have_their_own_names_and_sections():
    names, sections = [kind.name for kind in CORE_KINDS], [kind.section for kind in CORE_KINDS]
    assert len(set(names)) == len(set(sections)) == len(CORE_KINDS)
    assert {"mode", "model", "dataset", "loss", "optimizer", "scheduler", "tracker", "callback"} <= set(names)
    assert all(NAME.fullmatch(text) for text in (*names, *sections))
    assert CORE_SECTION_NAMES.isdisjoint(sections)


def test_the_name_of_a_component_is_reserved_everywhere():
    assert "name" in ALWAYS_RESERVED


@pytest.mark.parametrize(("name", "words"), [("model", "a model"), ("optimizer", "an optimizer")])
def test_a_kind_is_named_with_its_article(name, words):
    assert Kind(name, name).with_article == words
