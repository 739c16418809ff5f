"""The resolved configuration, written and read back, is the same configuration."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.checking import BASE, resolved, typed, write
from support.odd import odd_registry
from trainlattice.config.resolve import resolve_file, resolve_mapping
from trainlattice.config.snapshot import HEADER, snapshot_text

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    st.from_regex(r"[-+]?[0-9_]{1,4}([.:][0-9]{1,2})?([eE][-+]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        ["1E6", "695e0514", "no", "010", "2024-01-01", "null", "~", "", "true", "<<", "a\nb", " a", "#a"]
    ),
)
names = texts.filter(lambda text: bool(text.strip()) and text.isprintable())
paths = texts.filter(lambda text: text and "\0" not in text)
numbers = st.floats(allow_nan=False, allow_infinity=False)
layers = st.fixed_dictionaries({"width": st.integers(1, 10**30)}, optional={"bias": st.booleans()})
options = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "maybe": st.none() | texts,
        "number": numbers | st.integers(-(10**15), 10**15),
        "count": st.integers(-(10**40), 10**40),
        "flag": st.booleans(),
        "either": st.integers() | texts,
        "choice": st.sampled_from(["alpha", "beta", "1e3"]),
        "color": st.sampled_from(["red", "blue"]),
        "words": st.lists(texts, max_size=4),
        "numbers": st.lists(numbers, max_size=4),
        "pair": st.tuples(st.integers(), texts),
        "table": st.dictionaries(texts, numbers | texts, max_size=4),
        "layers": st.lists(layers, max_size=3),
        "groups": st.dictionaries(texts, layers, max_size=3),
        "inner": st.none() | layers,
        "schedule": st.none()
        | st.fixed_dictionaries({"kind": st.just("cosine"), "steps": st.integers(1)})
        | st.fixed_dictionaries({"kind": st.just("steps"), "at": st.lists(st.integers(1), max_size=3)}),
        "day": st.dates().map(date.isoformat),
        "place": paths,
        "lambda": numbers,
    },
)
REGISTRY = odd_registry()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(options=options, name=names, runs_dir=paths, seed=st.integers(0, 2**63 - 1))
@example(
    options={
        "text": "1E6",
        "maybe": "695e0514",
        "words": ["no", "010", "2024-01-01", "two\nlines"],
        "number": 1e-05,
    },
    name="1_1_1",
    runs_dir="~",
    seed=0,
)
def test_any_configuration_is_the_same_after_it_was_written(tmp_path, options, name, runs_dir, seed):
    config = {
        "experiment": {"name": name, "runs_dir": runs_dir, "seed": seed},
        "model": {"name": "odd", **options},
        "dataset": "data",
    }
    first = resolve_mapping(config, registry=REGISTRY).config
    text = snapshot_text(first)
    again = resolve_file(write(tmp_path, text), registry=REGISTRY).config
    assert typed(again.as_plain()) == typed(first.as_plain())
    assert again.one("model").options == first.one("model").options
    assert again.experiment == first.experiment
    assert snapshot_text(again) == text
    for key, value in options.items():
        if key in ("text", "words", "table", "either", "count", "flag"):
            assert typed(first.as_plain()["model"][key]) == typed(value)


def test_a_configuration_of_built_in_components_is_the_same_after_it_was_written(tmp_path):
    path = write(
        tmp_path,
        BASE
        + "optimizer: {name: sgd, lr: 1e-05, momentum: 0.9, nesterov: true}\n"
        + "scheduler: {name: warmup_cosine, warmup_steps: 3, total_steps: 9, min_lr: 1e-300}\n"
        + "loss: {name: cross_entropy, label_smoothing: 0.1}\n"
        + "callbacks: []\n"
        + "trainer: {max_grad_norm: 1, early_stopping: {patience: 0, min_delta: -0.0}, monitor: val_accuracy}\n",
    )
    first = resolved(path)
    text = snapshot_text(resolve_file(path).config)
    assert typed(resolved(write(tmp_path, text, "again.yaml"))) == typed(first)
    assert first["callbacks"] == []
    assert "scheduler" in first


def test_a_snapshot_says_what_it_is_and_keeps_the_order_of_sections(tmp_path):
    text = snapshot_text(resolve_file(write(tmp_path, BASE)).config)
    assert text.startswith(HEADER)
    assert HEADER.startswith("#")
    sections = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and line[0].isalpha()]
    assert sections[:3] == ["experiment", "mode", "model"]
    assert sections[-2:] == ["checkpoint", "plugins"]


def test_a_snapshot_may_be_extended_with_bare_names(tmp_path):
    write(tmp_path, snapshot_text(resolve_file(write(tmp_path, BASE)).config), "run/config.yaml")
    path = write(tmp_path, "extends: run/config.yaml\nmodel: {name: mlp, dropout: 0.5}\n")
    assert resolved(path)["model"]["input_dim"] == 4
    assert resolved(path)["model"]["dropout"] == 0.5


def test_a_snapshot_depends_on_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = resolved(write(tmp_path, "model: any\ndataset: {name: tensor, root: data}\n"), registry=REGISTRY)
    write(tmp_path, snapshot_text(first), "run/config.yaml")
    monkeypatch.chdir("/")
    assert resolved(tmp_path / "run" / "config.yaml", registry=REGISTRY) == first


@pytest.mark.parametrize("count", [2_000])
def test_a_long_list_is_read_back(tmp_path, count):
    config = {"model": {"name": "odd", "words": ["w" * 20] * count}, "dataset": "data"}
    first = resolve_mapping(config, registry=REGISTRY).config
    again = resolve_file(write(tmp_path, snapshot_text(first)), registry=REGISTRY).config
    assert again.as_plain() == first.as_plain()
