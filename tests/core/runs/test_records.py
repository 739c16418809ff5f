"""metrics.jsonl and the lines on the console."""

import json
import math
import os

import pytest

from support.disks import fill_the_disk_of
from trainlattice.diagnostics.errors import TrainLatticeError
from trainlattice.runs.records import RunRecords, console_line


def written(tmp_path, *found):
    with RunRecords(tmp_path / "metrics.jsonl", epochs=10, console=False) as out:
        for record in found:
            out.write(record)
    return (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()


def test_each_record_is_a_line_of_strict_json(tmp_path):
    lines = written(tmp_path, {"type": "batch", "epoch": 1, "step": 2, "loss": 0.5, "note": "ü\n"})
    assert len(lines) == 1
    parsed = json.loads(lines[0])
    assert parsed.pop("time") > 1.7e9
    assert parsed == {"schema": 1, "type": "batch", "epoch": 1, "step": 2, "loss": 0.5, "note": "ü\n"}


def test_a_number_that_is_not_finite_is_null_and_named(tmp_path):
    (line,) = written(
        tmp_path, {"type": "epoch", "a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.0, "e": 10**400}
    )
    parsed = json.loads(line)
    assert [parsed[key] for key in "abcd"] == [None, None, None, 0.0]
    assert parsed["e"] == 10**400
    assert parsed["nonfinite"] == ["a", "b", "c"]


def test_numbers_in_a_list_that_are_not_finite_are_null_and_the_list_is_named(tmp_path):
    (line,) = written(tmp_path, {"type": "epoch", "a": [[1.0, math.nan], [math.inf, 2]], "b": [1.0, [2.0]]})
    parsed = json.loads(line)
    assert (parsed["a"], parsed["b"]) == ([[1.0, None], [None, 2]], [1.0, [2.0]])
    assert parsed["nonfinite"] == ["a"]


def test_records_are_appended_to_what_is_there(tmp_path):
    written(tmp_path, {"type": "epoch", "epoch": 1})
    assert len(written(tmp_path, {"type": "epoch", "epoch": 2})) == 2


def test_a_flush_brings_every_record_to_the_file(tmp_path):
    with RunRecords(tmp_path / "metrics.jsonl", epochs=10, console=False) as out:
        out.write({"type": "batch", "step": 1})
        out.flush()
        assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 1


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    file = tmp_path / "gone" / "metrics.jsonl"
    with pytest.raises(TrainLatticeError) as raised:
        RunRecords(file, epochs=1)
    assert str(raised.value) == f"{file} could not be written: No such file or directory"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_file_that_takes_no_more_is_named(tmp_path, caplog):
    file = tmp_path / "metrics.jsonl"

    def write_two(out):
        with out:
            out.write({"type": "batch", "step": 1})
            fill_the_disk_of(file)
            out.write({"type": "batch", "step": 2})

    out = RunRecords(file, epochs=1, console=False)
    with pytest.raises(TrainLatticeError) as raised:
        write_two(out)
    assert str(raised.value) == f"{file} could not be written: No space left on device"
    assert f"{file} lacks its last records: No space left on device" in caplog.text
    assert [json.loads(line)["step"] for line in file.read_text().splitlines()] == [1]


def test_numbers_survive_exactly(tmp_path):
    value = 0.1 + 0.2
    (line,) = written(tmp_path, {"type": "epoch", "loss": value})
    assert json.loads(line)["loss"] == value


def test_a_line_of_the_console_names_epoch_step_and_numbers():
    line = console_line(
        {"type": "epoch", "epoch": 3, "step": 20, "train_loss": 0.12345, "lr": 0.001, "nonfinite": []}, 10
    )
    assert line == "epoch  3/10  step 20  train_loss 0.1235  lr 0.001"


def test_records_of_steps_are_printed_where_there_is_no_terminal(tmp_path, capsys):
    with RunRecords(tmp_path / "metrics.jsonl", epochs=2) as out:
        out.write({"type": "batch", "epoch": 1, "step": 2, "loss": 0.5})
    assert capsys.readouterr().out == "epoch 1/2  step 2  loss 0.5000\n"
