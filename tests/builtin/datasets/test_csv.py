"""Tables of numbers."""

import pytest
import torch

from trainlattice import OptionError
from trainlattice_plugin_datasets.csv import open_csv
from trainlattice_plugin_datasets.options import CsvOptions

pytestmark = pytest.mark.torch


def opened(directory, text, **options):
    data = text if isinstance(text, bytes) else text.encode()
    (directory / "t.csv").write_bytes(data)
    given = {"target": "y", "task": "regression", "standardize": False, "val_fraction": 0.5, **options}
    return open_csv(CsvOptions(path=str(directory / "t.csv"), **given))


def refused(directory, text, **options):
    with pytest.raises(OptionError) as raised:
        opened(directory, text, **options)
    return raised.value


def rows(splits):
    """All samples as ``{(features): target}``."""
    return {
        tuple(x.tolist()): y.tolist()
        for split in (splits.train, splits.val)
        for x, y in zip(split.inputs, split.targets, strict=True)
    }


def test_a_regression_has_float32_features_and_one_target_each(tmp_path):
    splits = opened(tmp_path, "a,y,b\n1,10,2.5\n3,20,4.5\n")
    assert rows(splits) == {(1.0, 2.5): [10.0], (3.0, 4.5): [20.0]}
    assert splits.train.targets.dtype == torch.float32
    contract = splits.contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == ((2,), "regression", 1)


def test_features_are_taken_in_the_order_that_is_given(tmp_path):
    splits = opened(tmp_path, "a,b,c,y\n1,2,3,0\n4,5,6,1\n", features=("c", "a"))
    assert set(rows(splits)) == {(3.0, 1.0), (6.0, 4.0)}


def test_classes_are_numbered_by_value(tmp_path):
    """As numbers 2 < 10, as text '10' < '2'."""
    text = "a,y\n" + "".join(f"{i},{c}\n" for i, c in enumerate(["10", "2", "-1", "10", "2", "-1"]))
    splits = opened(tmp_path, text, task="classification")
    assert rows(splits) == {(0.0,): 2, (1.0,): 1, (2.0,): 0, (3.0,): 2, (4.0,): 1, (5.0,): 0}
    assert splits.train.targets.dtype == torch.int64
    assert splits.contract.num_outputs == 3


def test_classes_that_are_words_are_sorted_after_numbers(tmp_path):
    text = "a,y\n" + "".join(f"{i},{c}\n" for i, c in enumerate(["cat", "7", "ant", "cat", "7", "ant"]))
    splits = opened(tmp_path, text, task="classification")
    assert rows(splits) == {(0.0,): 2, (1.0,): 0, (2.0,): 1, (3.0,): 2, (4.0,): 0, (5.0,): 1}


def test_quotes_spaces_a_byte_order_mark_and_windows_lines_are_understood(tmp_path):
    text = '\ufeff"a, first", y \r\n"1.5",2\r\n 3 ," 4 "\r\n\r\n'
    splits = opened(tmp_path, text, features=("a, first",))
    assert rows(splits) == {(1.5,): [2.0], (3.0,): [4.0]}


def test_another_delimiter_is_an_option(tmp_path):
    assert rows(opened(tmp_path, "a;y\n1;2\n3;4\n", delimiter=";")) == {(1.0,): [2.0], (3.0,): [4.0]}


def test_numbers_are_those_of_python_in_full_precision(tmp_path):
    splits = opened(tmp_path, "a,y\n-1e-3,1\n+2.5E2,2\n.5,3\n007,4\n")
    assert {key[0] for key in rows(splits)} == {torch.tensor(-1e-3).item(), 250.0, 0.5, 7.0}


# --- several inputs and targets


TABLE = "a,b,kind,c,value\n" + "".join(f"{i},{10 * i},{'xy'[i % 2]},{100 * i},{i}.5\n" for i in range(8))
TWO_TARGETS = {
    "value": {"column": "value", "task": "regression"},
    "kind": {"column": "kind", "task": "classification"},
}


def several(directory, text=TABLE, **options):
    return opened(directory, text, **{"target": TWO_TARGETS, "task": None, **options})


def test_several_targets_are_told_apart_by_name(tmp_path):
    splits = several(tmp_path)
    batch = splits.train.fetch_batch(torch.arange(4))
    assert list(batch) == ["input", "target/value", "target/kind"]
    assert batch["input"].tolist() == [[v, 10 * v, 100 * v] for v in batch["input"][:, 0].tolist()]
    assert torch.equal(batch["target/value"], batch["input"][:, :1] + 0.5)
    assert torch.equal(batch["target/kind"], batch["input"][:, 0].long() % 2)
    contract = splits.contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == ((3,), None, None)


def test_each_class_of_the_first_target_with_classes_gives_its_share_to_validate_on(tmp_path):
    splits = several(tmp_path, val_fraction=0.25)
    assert splits.val.fields["target/kind"].bincount().tolist() == [1, 1]


def test_several_inputs_are_told_apart_by_name_and_may_share_columns(tmp_path):
    inputs = {"right": ("c", "a"), "left": ("a",)}
    splits = opened(tmp_path, TABLE, target="value", features=inputs)
    batch = splits.train.fetch_batch(torch.arange(4))
    assert list(batch) == ["input/right", "input/left", "target"]
    assert torch.equal(batch["input/right"], batch["input/left"] * torch.tensor([100.0, 1.0]))
    assert torch.equal(batch["target"], batch["input/left"] + 0.5)
    contract = splits.contract
    assert (contract.input_shape, contract.task, contract.num_outputs) == (None, "regression", 1)


def test_several_inputs_are_standardised_and_filled_in_as_one_is(tmp_path):
    text = TABLE.replace("\n3,30,", "\n3,,")
    one = opened(tmp_path, text, target="value", features=("b", "c"), missing="mean", standardize=True)
    two = opened(
        tmp_path,
        text,
        target="value",
        features={"x": ("b",), "y": ("c",)},
        missing="mean",
        standardize=True,
    )
    for split in ("train", "val"):
        fields = getattr(two, split).fields
        assert torch.equal(torch.cat([fields["input/x"], fields["input/y"]], 1), getattr(one, split).inputs)


def test_what_is_wrong_with_several_inputs_or_targets_is_shown_at_its_place(tmp_path):
    error = refused(tmp_path, TABLE, target="value", features={"x": ("a", "value")})
    assert (error.option, error.message) == (("features", "x", 1), "'value' is the target")
    error = refused(tmp_path, TABLE, target=TWO_TARGETS, task=None, features=("a", "kind"))
    assert (error.option, error.message) == (("features", 1), "'kind' is a target")
    gone = {"far": {"column": "z", "task": "regression"}}
    error = refused(tmp_path, TABLE, target=gone, task=None)
    assert error.option == ("target", "far", "column")
    assert error.message == "there is no column 'z'; columns: a, b, kind, c, value"
    error = refused(tmp_path, TABLE.replace(",y,", ",,"), target=TWO_TARGETS, task=None)
    assert error.option == ("target", "kind", "column")
    assert "t.csv:3: the target 'kind' is missing" in error.message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"target": "y", "task": None}, "the option 'task' is needed"),
        ({"target": TWO_TARGETS, "task": "regression"}, "several targets have a task each"),
    ],
)
def test_every_target_has_one_task(options, says):
    with pytest.raises(ValueError, match=says):
        CsvOptions(path="t.csv", **options)


# --- missing values


def test_a_missing_value_is_refused_with_its_line_and_column_and_the_way_out(tmp_path):
    for cell in ("", "NA", "nan", "NULL", " "):
        error = refused(tmp_path, f"a,b,y\n1,2,3\n4,{cell},6\n")
        assert error.option == ("missing",)
        assert "t.csv:3: 'b' is missing; 'missing: mean' or 'missing: median' fills it in" in error.message


@pytest.mark.parametrize(("missing", "centre"), [("mean", 5.0), ("median", 2.0)])
def test_a_missing_value_is_filled_from_the_training_rows_alone(tmp_path, missing, centre):
    """The training rows hold 1, 2 and 12 beside a gap; the validation rows 1000 and a gap of their own."""
    probe = opened(tmp_path, "a,b,y\n" + "".join(f"{i},0,0\n" for i in range(8)))
    train = [int(x[0]) for x in probe.train.inputs]
    val = [int(x[0]) for x in probe.val.inputs]
    values = dict(zip(train, ["1", "2", "12", ""], strict=True)) | dict(
        zip(val, ["1000", "1000", "1000", ""], strict=True)
    )
    text = "a,b,y\n" + "".join(f"{i},{values[i]},0\n" for i in range(8))
    found = rows(opened(tmp_path, text, missing=missing))
    for row in (train[-1], val[-1]):
        assert (float(row), centre) in found
    assert (float(val[0]), 1000.0) in found


def test_a_column_without_any_training_value_cannot_be_filled(tmp_path):
    error = refused(tmp_path, "a,b,y\n1,,1\n2,,2\n", missing="mean")
    assert error.option == ("missing",)
    assert "'b' has no value in the training rows to take a mean of" in error.message


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_missing_target_is_refused_whatever_missing_says(tmp_path, task):
    error = refused(tmp_path, "a,y\n1,2\n3,\n4,2\n", task=task, missing="mean")
    assert error.option == ("target",)
    assert "t.csv:3: the target 'y' is missing" in error.message


# --- standardisation


def test_features_are_standardised_by_the_training_rows(tmp_path):
    text = "a,b,y\n" + "".join(f"{i * i},{5},0\n" for i in range(10))
    raw, scaled = (opened(tmp_path, text, standardize=flag) for flag in (False, True))
    train = raw.train.inputs[:, 0].double()
    mean, std = train.mean(), train.std(correction=0)
    for split in ("train", "val"):
        expected = (getattr(raw, split).inputs[:, 0].double() - mean) / std
        assert torch.allclose(getattr(scaled, split).inputs[:, 0].double(), expected, atol=1e-6)
    assert scaled.train.inputs[:, 0].mean().item() == pytest.approx(0, abs=1e-6)
    assert torch.equal(scaled.train.inputs[:, 1], torch.zeros(5))  # a constant column has no deviation


def test_targets_are_not_standardised(tmp_path):
    splits = opened(tmp_path, "a,y\n1,100\n2,200\n", standardize=True)
    assert sorted(splits.train.targets.flatten().tolist() + splits.val.targets.flatten().tolist()) == [
        100.0,
        200.0,
    ]


# --- the split


def test_the_split_follows_split_seed_and_gives_each_class_its_share(tmp_path):
    text = "a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(40))
    first, same, other = (
        opened(tmp_path, text, task="classification", val_fraction=0.25, split_seed=s) for s in (0, 0, 1)
    )
    assert torch.equal(first.val.inputs, same.val.inputs)
    assert not torch.equal(first.val.inputs, other.val.inputs)
    assert torch.bincount(first.val.targets).tolist() == [5, 5]


def test_a_split_that_leaves_a_side_empty_is_refused_at_val_fraction(tmp_path):
    error = refused(tmp_path, "a,y\n1,2\n3,4\n", val_fraction=0.1)
    assert error.option == ("val_fraction",)


# --- files that are wrong


@pytest.mark.parametrize(
    ("text", "option", "says"),
    [
        ("a,b,y\n1,2,3\n4,5\n6,7,8\n", "path", "t.csv:3 has 2 cells, and the header has 3"),
        ('a,y\n"1\n",2\n3\n', "path", "t.csv:4 has 1 cells"),
        ("a,y\n1,2\nx,3\n", "path", "t.csv:3: 'a' is 'x', which is no finite number"),
        ("a,y\n1,2\ninf,3\n", "path", "t.csv:3: 'a' is 'inf', which is no finite number"),
        ("a,y\n1,2\n1_000,3\n", "path", "t.csv:3: 'a' is '1_000', which is no finite number"),
        ("a,y\n1,2\n1,high\n", "path", "t.csv:3: 'y' is 'high', which is no finite number"),
        ("a,b\n1,2\n", "target", "there is no column 'y'; columns: a, b"),
        ("a,a,y\n1,2,3\n", "path", "has several columns named 'a'"),
        ("y\n1\n2\n", "path", "has no column beside the target"),
        ("a,y\n", "path", "has no rows"),
        ("", "path", "has no rows"),
        (b"a,y\n\xff,2\n", "path", "is not UTF-8 text"),
        ('a,y\n"1,2\n3,4\n', "path", "t.csv:"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_the_place(tmp_path, text, option, says):
    error = refused(tmp_path, text)
    assert error.option == (option,)
    assert says in error.message


def test_an_unknown_feature_is_refused_at_its_place_in_the_list(tmp_path):
    error = refused(tmp_path, "a,y\n1,2\n3,4\n", features=("a", "z"))
    assert error.option == ("features", 1)
    assert "there is no column 'z'; columns: a, y" in error.message


def test_the_target_cannot_be_a_feature(tmp_path):
    error = refused(tmp_path, "a,y\n1,2\n3,4\n", features=("y",))
    assert error.option == ("features", 0)


def test_a_feature_that_is_named_twice_is_refused(tmp_path):
    error = refused(tmp_path, "a,b,y\n1,2,3\n4,5,6\n", features=("a", "b", "a"))
    assert error.option == ("features", 2)
    assert "'a' is named twice" in error.message


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"gone\.csv does not exist"):
        open_csv(CsvOptions(path=str(tmp_path / "gone.csv"), target="y", task="regression"))
