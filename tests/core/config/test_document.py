"""``extends`` and ``--set``: what a configuration is put together from."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.checking import BASE, mistake, mistakes, places, resolved, write
from support.odd import odd_registry

# --- extends ----------------------------------------------------------------------------------------


def test_a_file_changes_what_it_extends_key_by_key(tmp_path):
    write(tmp_path, BASE + "trainer: {epochs: 5, log_every: 3}\n", "base.yaml")
    config = resolved(write(tmp_path, "extends: base.yaml\nmodel: {dropout: 0.2}\ntrainer: {epochs: 9}\n"))
    assert (config["model"]["input_dim"], config["model"]["dropout"]) == (4, 0.2)
    assert (config["trainer"]["epochs"], config["trainer"]["log_every"]) == (9, 3)
    assert "extends" not in config


def test_lists_replace_the_list_of_the_base(tmp_path):
    write(tmp_path, BASE, "base.yaml")
    config = resolved(write(tmp_path, "extends: base.yaml\nmodel: {hidden_dims: [2, 2]}\n"))
    assert config["model"]["hidden_dims"] == [2, 2]


def test_the_base_is_found_beside_the_file_whatever_the_current_directory(tmp_path, monkeypatch):
    write(tmp_path, BASE, "configs/common/base.yaml")
    write(tmp_path, "extends: common/base.yaml\n", "configs/middle.yaml")
    path = write(tmp_path, "extends: ../configs/middle.yaml\n", "more configs/c.yaml")
    monkeypatch.chdir(tmp_path.parent)
    assert resolved(path)["model"]["input_dim"] == 4


def test_home_is_expanded(tmp_path, monkeypatch):
    write(tmp_path, BASE, "home/base.yaml")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert resolved(write(tmp_path, "extends: ~/base.yaml\n"))["model"]["input_dim"] == 4


def test_of_several_bases_a_later_one_wins_and_the_file_itself_over_all(tmp_path):
    write(tmp_path, BASE + "trainer: {epochs: 2, log_every: 2, accumulate: 2}\n", "one.yaml")
    write(tmp_path, "trainer: {epochs: 3, log_every: 3}\n", "two.yaml")
    config = resolved(write(tmp_path, "extends: [one.yaml, two.yaml]\ntrainer: {epochs: 4}\n"))
    trainer = config["trainer"]
    assert (trainer["epochs"], trainer["log_every"], trainer["accumulate"]) == (4, 3, 2)


def test_a_base_may_extend_another(tmp_path):
    write(tmp_path, BASE + "trainer: {epochs: 2, log_every: 2, accumulate: 2}\n", "one.yaml")
    write(tmp_path, "extends: one.yaml\ntrainer: {epochs: 3, log_every: 3}\n", "two.yaml")
    trainer = resolved(write(tmp_path, "extends: two.yaml\ntrainer: {epochs: 4}\n"))["trainer"]
    assert (trainer["epochs"], trainer["log_every"], trainer["accumulate"]) == (4, 3, 2)


@pytest.mark.parametrize("text", ["c.yaml", "[other.yaml]", "./c.yaml", "../{}/c.yaml"])
def test_a_circle_is_refused_where_it_closes(tmp_path, text):
    write(tmp_path, "extends: c.yaml\n", "other.yaml")
    found = mistake(write(tmp_path, f"# comment\nextends: {text.format(tmp_path.name)}\n"))
    assert found.code == "extends-cycle"
    assert "extends goes in a circle: " in found.message
    assert found.message.endswith("c.yaml")
    assert found.message.count("c.yaml") == 2
    closing = "other.yaml:1:10" if "other" in text else "c.yaml:2:10"
    assert places([found]) == [(closing, "extends")]


def test_a_missing_base_is_reported_where_it_is_named(tmp_path):
    write(tmp_path, BASE, "base.yaml")
    found = mistake(write(tmp_path, "extends:\n  - base.yaml\n  - nope.yaml\n"))
    assert (found.code, places([found])) == ("no-such-file", [("c.yaml:3:5", "extends")])
    assert found.message.endswith("nope.yaml: no such file")


def test_a_missing_base_of_a_base_is_reported_in_the_base(tmp_path):
    write(tmp_path, "trainer:\nextends: nope.yaml\n", "base.yaml")
    found = mistake(write(tmp_path, "extends: base.yaml\n"))
    assert places([found]) == [("base.yaml:2:10", "extends")]


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("a: [\nb: 1\n", "base.yaml:3:1: "),
        ("a: 1\n---\nb: 1\n", "base.yaml:2:1: a second YAML document"),
        ("# nothing\n", "base.yaml is empty"),
        ("a: *x\n", "base.yaml:1:4: the alias *x"),
        ("- a\n", "base.yaml:1:1: the top level must be a mapping of sections, not a list"),
    ],
)
def test_a_base_that_cannot_be_read_shows_its_place_and_the_place_that_names_it(tmp_path, base, says):
    write(tmp_path, base, "base.yaml")
    found = mistake(write(tmp_path, "extends: base.yaml\n"))
    assert places([found]) == [("c.yaml:1:10", "extends")]
    assert says in found.message


def test_mistakes_of_a_base_are_shown_at_its_own_lines_after_those_of_the_file(tmp_path):
    write(tmp_path, BASE + "trainer:\n  epochs: true\n  log_evry: 3\n  log_every: 2\n", "base.yaml")
    path = write(tmp_path, "extends: base.yaml\nmodel: {dropout: 2.0}\ntrainer: {log_every: x}\n")
    assert places(mistakes(path)) == [
        ("c.yaml:2:18", "model.dropout"),
        ("c.yaml:3:22", "trainer.log_every"),
        ("base.yaml:12:11", "trainer.epochs"),
        ("base.yaml:13:3", "trainer.log_evry"),
    ]


def test_a_base_that_is_reached_twice_is_read_once_and_its_mistakes_are_shown_once(tmp_path):
    write(tmp_path, BASE + "trainer: {epochs: 2, epochs: 3}\n", "base.yaml")
    write(tmp_path, "extends: base.yaml\n", "left.yaml")
    write(tmp_path, "extends: base.yaml\n", "right.yaml")
    found = mistake(write(tmp_path, "extends: [left.yaml, right.yaml, base.yaml]\n"))
    assert places([found]) == [("base.yaml:11:22", "epochs")]


def test_a_chain_of_twenty_files_is_read_and_a_longer_one_is_refused(tmp_path):
    write(tmp_path, BASE, "20.yaml")
    for number in range(20):
        write(tmp_path, f"extends: [{number + 1}.yaml, {number + 1}.yaml]\n", f"{number}.yaml")
    assert resolved(tmp_path / "0.yaml")["model"]["input_dim"] == 4
    found = mistake(write(tmp_path, "extends: 0.yaml\n"))
    assert (found.code, places([found])) == ("extends-too-long", [("19.yaml:1:11", "extends")])


@pytest.mark.parametrize(
    ("value", "place", "got"),
    [
        ("3", "12:10", "the number 3"),
        ("{a: b}", "12:10", "a mapping"),
        ("[base.yaml, [x]]", "12:22", "a list"),
        ("''", "12:10", "the string ''"),
        ("", "12:9", "nothing (null)"),
    ],
)
def test_extends_takes_file_names_only(tmp_path, value, place, got):
    write(tmp_path, BASE, "base.yaml")
    found = mistake(write(tmp_path, BASE + f"\nextends: {value}\n"))
    assert places([found]) == [(f"c.yaml:{place}", "extends")]
    assert found.message == f"expected a file name or a list of them, got {got}"


def test_sections_that_an_unknown_base_may_hold_are_not_reported_missing(tmp_path):
    path = write(tmp_path, "extends: 3\ntrainer: {epochs: x}\n")
    assert places(mistakes(path)) == [("c.yaml:1:10", "extends"), ("c.yaml:2:19", "trainer.epochs")]


def test_no_file_is_extended_by_an_empty_list(tmp_path):
    assert resolved(write(tmp_path, "extends: []\n" + BASE))["model"]["input_dim"] == 4


def test_a_nul_in_the_name_of_a_base_is_a_mistake_at_its_place(tmp_path):
    found = mistake(write(tmp_path, 'extends: "a\\0b"\n'))
    assert (found.code, places([found])) == ("unreadable", [("c.yaml:1:10", "extends")])


# --- extends and another component -------------------------------------------------------------------


def test_another_component_keeps_the_keys_of_core_only(tmp_path):
    write(tmp_path, BASE + "optimizer: {name: adamw, lr: 0.5, amsgrad: true}\n", "base.yaml")
    path = write(tmp_path, "extends: base.yaml\nmodel: any\ndataset: {name: data}\noptimizer: {name: sgd}\n")
    config = resolved(path, registry=odd_registry())
    assert config["model"] == {"name": "odd:any", "inputs": None}
    assert config["dataset"] == {
        "name": "odd:data", "batch_size": 8, "num_workers": 0, "start_method": None,
        "drop_last": False, "shape": None, "task": None, "outputs": None,
    }  # fmt: skip
    assert (config["optimizer"]["name"], config["optimizer"]["lr"]) == ("optimizers:sgd", 0.001)


@pytest.mark.parametrize("name", ["mlp", "models:mlp"])
def test_the_same_component_keeps_its_options(tmp_path, name):
    write(tmp_path, BASE, "base.yaml")
    path = write(tmp_path, f"extends: base.yaml\nmodel: {{name: '{name}', dropout: 0.5}}\n")
    assert resolved(path)["model"] == {
        "name": "models:mlp", "inputs": None, "input_dim": 4, "hidden_dims": [8], "num_classes": 3, "dropout": 0.5,
    }  # fmt: skip


def test_options_without_a_name_are_those_of_the_component_of_the_base(tmp_path):
    write(tmp_path, "model: mlp\ndataset: {name: synthetic, input_shape: [4], num_classes: 3}\n", "base.yaml")
    path = write(tmp_path, "extends: base.yaml\nmodel: {input_dim: 4, num_classes: 3}\n")
    assert resolved(path)["model"]["input_dim"] == 4


def test_a_section_may_be_emptied(tmp_path):
    write(tmp_path, BASE + "scheduler: {name: step_decay, step_size: 3}\n", "base.yaml")
    assert "scheduler" in resolved(tmp_path / "base.yaml")
    assert "scheduler" not in resolved(write(tmp_path, "extends: base.yaml\nscheduler: null\n"))


# --- --set -------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path) -> Path:
    return write(tmp_path, BASE + "optimizer: {name: adamw, betas: [0.8, 0.9]}\ncallbacks: [progress]\n")


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("optimizer.lr=1e-5", "optimizer", "lr", 1e-05),
        ("optimizer.lr=3", "optimizer", "lr", 3.0),
        ("optimizer.amsgrad=true", "optimizer", "amsgrad", True),
        ("trainer.epochs=7", "trainer", "epochs", 7),
        ("trainer.max_grad_norm=null", "trainer", "max_grad_norm", None),
        ("trainer.max_grad_norm=", "trainer", "max_grad_norm", None),
        ("trainer.precision=bf16", "trainer", "precision", "bf16"),
        ("trainer.precision = bf16", "trainer", "precision", "bf16"),
        ("trainer.early_stopping.patience=3", "trainer", "early_stopping", {"patience": 3, "min_delta": 0.0}),
        (
            "trainer.early_stopping={patience: 3}",
            "trainer",
            "early_stopping",
            {"patience": 3, "min_delta": 0.0},
        ),
        ("model.hidden_dims=[]", "model", "hidden_dims", []),
        ("model.hidden_dims=[3, 4]", "model", "hidden_dims", [3, 4]),
        ("model.hidden_dims.0=3", "model", "hidden_dims", [3]),
        ("optimizer.betas.1=0.5", "optimizer", "betas", [0.8, 0.5]),
        ("optimizer=sgd", "optimizer", "name", "optimizers:sgd"),
    ],
)
def test_an_override_has_the_type_of_the_field_it_sets(config, override, section, key, value):
    found = resolved(config, override)[section][key]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("1_1_1", "1_1_1"), ("a=b", "a=b"), ("1e5", "1e5"), ("007", "007"), ("0x10", "0x10"), ("true", "true"),
        ("null", "null"), ("~", "~"), ("2024-01-01", "2024-01-01"), ("a: b", "a: b"), ("[a]", "[a]"),
        ("{a: b}", "{a: b}"), ("[a", "[a"), ("a #1", "a #1"), ("#1", "#1"), ("&a x", "&a x"), ("*a", "*a"),
        ("日本", "日本"), ("!x y", "!x y"), ("!!str 3", "!!str 3"), ("'a b'", "a b"), ('"7"', "7"),
        ("it's", "it's"), ("${HOME}", "${HOME}"), ("%", "%"), ("- a", "- a"), ("<<", "<<"), (".nan", ".nan"),
        ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_text_is_taken_as_typed(config, text, kept):
    registry = odd_registry()
    overrides = ("model=odd", f"model.text={text}", "dataset=data")
    found = resolved(config, *overrides, registry=registry)["model"]["text"]
    assert found == kept


def test_an_empty_value_is_an_empty_text_or_nothing(config):
    overrides = ("model=odd", "model.text=", "model.maybe=", "dataset=data")
    model = resolved(config, *overrides, registry=odd_registry())["model"]
    assert (model["text"], model["maybe"]) == ("", None)


def test_white_space_alone_is_a_text(config):
    overrides = ("model=odd", "model.text= \t", "dataset=data")
    assert resolved(config, *overrides, registry=odd_registry())["model"]["text"] == " \t"


def test_of_two_overrides_of_one_value_the_later_wins(config):
    assert resolved(config, "trainer.epochs=2", "trainer.epochs=3")["trainer"]["epochs"] == 3


def test_an_override_reaches_into_a_component_that_is_a_name_only(config):
    assert resolved(config, "callbacks.0.refresh_per_second=3")["callbacks"] == [
        {"name": "callbacks:progress", "refresh_per_second": 3}
    ]


def test_an_override_wins_over_what_is_extended(tmp_path):
    write(tmp_path, BASE + "trainer: {epochs: 2}\n", "base.yaml")
    assert resolved(write(tmp_path, "extends: base.yaml\n"), "trainer.epochs=3")["trainer"]["epochs"] == 3


@pytest.mark.parametrize(
    ("override", "column", "path", "message"),
    [
        ("optimizer.lr=abc", 14, "optimizer.lr", "expected a number, got the string 'abc'"),
        ("optimizer.lr=true", 14, "optimizer.lr", "expected a number, got the boolean true"),
        ("optimizer.lr=", 14, "optimizer.lr", "expected a number, got nothing (null)"),
        ("optimizer.lr=-1", 14, "optimizer.lr", "expected a value greater than 0, got the number -1"),
        ("optimizer.lr=.nan", 14, "optimizer.lr", "expected a finite number, got the number .nan"),
        ("trainer.epochs=1e3", 16, "trainer.epochs", "expected an integer, got the number 1e3"),
        ("trainer.epochs=3 # 4", 16, "trainer.epochs", "expected an integer, got the string '3 # 4'"),
        ("optimizer.lrr=0.1", 1, "optimizer.lrr", "unknown option 'lrr' for optimizer 'optimizers:adamw'"),
        ("optimizer.a.b=0.1", 1, "optimizer.a", "unknown option 'a' for optimizer 'optimizers:adamw'"),
        ("optimisers.lr=0.1", 1, "optimisers", "unknown section 'optimisers'"),
        ("mode=supervized", 6, "mode.name", "no mode is named 'supervized'"),
        ("optimizer.lr.x=1", 1, "optimizer.lr", "expected a number, got a mapping"),
        ("model.input_dim.x=1", 1, "model.input_dim.x",
         "model.input_dim is the number 4, which has no 'x'"),
        ("optimizer.betas.2=1", 1, "optimizer.betas.2",
         "optimizer.betas is a list of 2: '2' is no index into it"),
        ("optimizer.betas.-1=1", 1, "optimizer.betas.-1",
         "optimizer.betas is a list of 2: '-1' is no index into it"),
        ("optimizer.betas.x=1", 1, "optimizer.betas.x",
         "optimizer.betas is a list of 2: 'x' is no index into it"),
        ("optimizer.betas.0=1", 19, "optimizer.betas.0", "expected a value less than 1, got the number 1"),
        ("trainer={epochs: 2, epochs: 3}", 9, "trainer", "'epochs' is given twice in one mapping"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_shown_at_its_own_place(config, override, column, path, message):
    found = mistake(config, override)
    assert places([found]) == [(f"--set:1:{column}", path)]
    assert found.message == message
    assert f"1 | {override}" in found.render()


@pytest.mark.parametrize("override", ["abc", "=3", "a..b=3", ".a=3", "a.=3", ""])
def test_an_override_without_key_and_value_shows_the_form(config, override):
    found = mistake(config, override)
    assert found.message == "an override has the form KEY=VALUE, such as optimizer.lr=3e-4"
    assert places([found]) == [("--set:1:1", "")]


def test_wrong_overrides_are_numbered_and_come_after_the_mistakes_of_the_file(tmp_path):
    path = write(tmp_path, BASE + "trainer: {epochs: x}\n")
    found = mistakes(path, ("trainer.log_every=0", "experiment.seed=1", "optimizer.lr=abc"))
    assert places(found) == [
        ("c.yaml:11:19", "trainer.epochs"),
        ("--set:1:19", "trainer.log_every"),
        ("--set:3:14", "optimizer.lr"),
    ]


def test_an_override_repairs_a_mistake_of_the_file(tmp_path):
    path = write(tmp_path, BASE + "trainer: {epochs: x}\n")
    assert resolved(path, "trainer.epochs=2")["trainer"]["epochs"] == 2


def test_an_override_that_is_not_utf8_is_refused(config):
    assert mistake(config, "experiment.name=a\udcff").message == "an override must be UTF-8 text"
