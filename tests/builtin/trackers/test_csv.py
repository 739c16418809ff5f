"""``csv``: a table for each type of record, exact and whole whatever columns come later."""

import csv
import json

import pytest

from support.runs import records
from trainlattice import TrackedRun
from trainlattice_plugin_trackers.csv_files import CsvFiles

pytestmark = pytest.mark.torch
pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")


def rows(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_record_is_a_row_and_every_number_reads_back_to_the_same_bits(followed):
    run = followed("csv")
    for kind in ("batch", "epoch", "validation", "event"):
        expected = records(run, kind)
        found = rows(run / "csv" / f"{kind}.csv")
        assert len(found) == len(expected)
        for row, record in zip(found, expected, strict=True):
            for name, text in row.items():
                value = record.get(name)
                if isinstance(value, float):
                    assert float(text) == value
                elif isinstance(value, (int, list)):
                    assert json.loads(text) == value
                else:
                    assert text == (value or "")
            assert record.keys() - row.keys() == {"schema", "type"}


def test_a_second_table_has_a_directory_of_its_own(followed):
    run = followed("csv", {"name": "csv", "as": "more"})
    assert (run / "csv-more" / "batch.csv").read_bytes() == (run / "csv" / "batch.csv").read_bytes()


def test_a_column_that_comes_later_is_empty_in_the_rows_before(tmp_path):
    tracker = CsvFiles()
    tracker.start(TrackedRun("csv", tmp_path, "x", 0, {}))
    place = {"schema": 1, "type": "batch", "time": 1.5, "epoch": 1}
    tracker.log({**place, "step": 1, "loss": 0.1, "note": 'a "b",\nc'})
    tracker.log({**place, "step": 2, "loss": None, "nonfinite": ["loss"]})
    tracker.log({**place, "step": 3, "loss": 5e-324, "grad_norm": 1e300})
    tracker.flush()
    held = (tmp_path / "csv" / "batch.csv").read_text()
    tracker.finish("finished", None)
    found = rows(tmp_path / "csv" / "batch.csv")
    assert list(found[0]) == ["time", "epoch", "step", "loss", "note", "nonfinite", "grad_norm"]
    assert [row["loss"] for row in found] == ["0.1", "", "5e-324"]
    assert [row["note"] for row in found] == ['a "b",\nc', "", ""]
    assert [row["nonfinite"] for row in found] == ["", '["loss"]', ""]
    assert [row["grad_norm"] for row in found] == ["", "", "1e+300"]
    assert held.count("5e-324") == 1  # flush had written it
    assert [path.name for path in (tmp_path / "csv").iterdir()] == ["batch.csv"]


def started(directory):
    tracker = CsvFiles()
    tracker.start(TrackedRun("csv", directory, "x", 0, {}))
    return tracker


def test_a_column_may_come_after_a_table_that_is_larger_than_any_field_that_csv_reads(tmp_path):
    tracker = started(tmp_path)
    place = {"schema": 1, "type": "validation", "time": 1.5}
    table = [[1.0 / 3] * 100] * 100
    texts = ["", 'a"\n"', "a\r", "\r\n", '"', "b"]
    for step, text in enumerate(texts):
        tracker.log({**place, "step": step, "confusion_matrix": table, "note": text})
    tracker.log({**place, "step": 6, "val_loss": 0.5, "val_f1": 0.25})
    tracker.finish("finished", None)
    before = csv.field_size_limit(10_000_000)
    try:
        found = rows(tmp_path / "csv" / "validation.csv")
    finally:
        csv.field_size_limit(before)
    assert len(json.dumps(table)) > before
    assert list(found[0]) == ["time", "step", "confusion_matrix", "note", "val_loss", "val_f1"]
    assert [json.loads(row["confusion_matrix"]) for row in found[:-1]] == [table] * 6
    assert [row["note"] for row in found[:-1]] == texts
    assert {(row["val_loss"], row["val_f1"]) for row in found[:-1]} == {("", "")}
    assert list(found[-1].values()) == ["1.5", "6", "", "", "0.5", "0.25"]


def test_a_file_that_cannot_be_written_anew_stays_and_nothing_else_is_left(tmp_path, monkeypatch):
    def fail(*paths):
        raise OSError("no space")

    tracker = started(tmp_path)
    tracker.log({"type": "batch", "step": 1})
    monkeypatch.setattr("trainlattice_plugin_trackers.csv_files.os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        tracker.log({"type": "batch", "step": 2, "loss": 0.5})
    monkeypatch.undo()
    tracker.finish("failed", None)
    assert [path.name for path in (tmp_path / "csv").iterdir()] == ["batch.csv"]
    assert rows(tmp_path / "csv" / "batch.csv") == [{"step": "1"}]
