"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from trainlattice.diagnostics.hints import closest, did_you_mean

OPTIMIZER = ["lr", "betas", "eps", "weight_decay", "amsgrad"]
TRAINER = ["epochs", "device", "validate_every", "log_every", "monitor", "max_grad_norm", "accumulate"]
SECTIONS = ["experiment", "model", "dataset", "optimizer", "scheduler", "loss", "trainer", "callbacks"]


@pytest.mark.parametrize(
    ("word", "legal", "meant"),
    [
        ("weight_decai", OPTIMIZER, "weight_decay"),
        ("lrr", OPTIMIZER, "lr"),
        ("epoch", TRAINER, "epochs"),
        ("dataest", SECTIONS, "dataset"),
        ("callback", SECTIONS, "callbacks"),
    ],
)
def test_a_misspelt_name_finds_its_nearest(word, legal, meant):
    assert closest(word, legal) == meant


@pytest.mark.parametrize("word", ["weight-decay", "Weight_Decay", "weight decay", "WEIGHT-DECAY"])
def test_hyphens_spaces_and_capitals_do_not_matter(word):
    assert closest(word, OPTIMIZER) == "weight_decay"


@pytest.mark.parametrize(
    ("word", "legal", "meant"),
    [
        ("learning_rate", OPTIMIZER, "lr"),
        ("learning-rate", OPTIMIZER, "lr"),
        ("wd", OPTIMIZER, "weight_decay"),
        ("max_epochs", TRAINER, "epochs"),
        ("grad_clip", TRAINER, "max_grad_norm"),
        ("gradient_accumulation_steps", TRAINER, "accumulate"),
        ("data", SECTIONS, "dataset"),
        ("train", SECTIONS, "trainer"),
        ("criterion", SECTIONS, "loss"),
        ("lr_scheduler", SECTIONS, "scheduler"),
    ],
)
def test_a_word_of_other_tools_finds_ours(word, legal, meant):
    assert closest(word, legal) == meant


def test_an_alias_is_suggested_only_where_it_is_legal():
    assert closest("learning_rate", TRAINER) is None


def test_a_word_far_from_all_names_has_no_suggestion():
    assert closest("zebra", OPTIMIZER) is None
    assert did_you_mean("zebra", OPTIMIZER) is None


def test_the_suggestion_is_a_question():
    assert did_you_mean("lrr", OPTIMIZER) == "did you mean 'lr'?"


def test_a_name_in_capitals_is_suggested_as_it_is_spelt():
    assert closest("t_max", ["T_max", "eta_min"]) == "T_max"
