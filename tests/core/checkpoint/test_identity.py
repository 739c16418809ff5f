"""The comparison of two checkpoints notices whatever differs, and says where."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from support.runs import checkpoint, tiny, train  # noqa: E402
from trainlattice.checkpoint.identity import WEIGHTS, compare_checkpoints  # noqa: E402

State = dict[str, Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of a run with momentum and a schedule."""
    directory = tmp_path_factory.mktemp("identity")
    config = tiny(
        optimizer={"name": "adamw", "lr": 0.01}, scheduler={"name": "warmup_cosine", "warmup_steps": 2}
    )
    run = train(config, directory).run_dir
    assert run is not None
    return run / "checkpoints" / "last.pt"


def flip(tensor: Any) -> None:
    """Changes one bit of one element."""
    tensor.view(-1).view(torch.uint8)[0] ^= 1


def first(mapping: State) -> Any:
    return next(iter(mapping.values()))


def one_bit_of_a_weight(state: State) -> None:
    flip(first(state["states"]["model/model"]))


def a_tensor_is_missing(state: State) -> None:
    state["states"]["model/model"].popitem()


def another_type(state: State) -> None:
    name, tensor = next(iter(state["states"]["model/model"].items()))
    state["states"]["model/model"][name] = tensor.double()


def one_bit_of_a_moment(state: State) -> None:
    flip(first(state["states"]["update/optimizer"]["optimizer"]["state"])["exp_avg"])


def the_schedule(state: State) -> None:
    state["states"]["update/optimizer"]["scheduler"]["last_epoch"] += 1


def one_word_of_python(state: State) -> None:
    state["rng"]["python"]["numbers"][300] ^= 1


def one_bit_of_torch(state: State) -> None:
    flip(state["rng"]["torch"])


def the_sign_of_zero(state: State) -> None:
    state["trainer"]["best_metric"] = -0.0


def samples_of_the_epoch(state: State) -> None:
    state["states"]["progress"]["samples"] += 1


def the_budget(state: State) -> None:
    state["budget"] += 1


CHANGES: dict[Callable[[State], None], tuple[str, str]] = {
    one_bit_of_a_weight: ("weights", "1 of "),
    a_tensor_is_missing: ("weights", "only in the first"),
    another_type: ("weights", "torch.float64"),
    one_bit_of_a_moment: ("optimizer", "exp_avg: 1 of "),
    the_schedule: ("scheduler", "scheduler/last_epoch: "),
    one_word_of_python: ("rng", "rng/python/numbers/300: "),
    one_bit_of_torch: ("rng", "rng/torch: 1 of "),
    the_sign_of_zero: ("trainer", "trainer/best_metric: 0.0 | -0.0"),
    samples_of_the_epoch: ("progress", "progress/samples: "),
    the_budget: ("header", "header/budget: "),
}


def variant(original: Path, directory: Path, change: Callable[[State], None] | None = None) -> Path:
    state = copy.deepcopy(checkpoint(original.parent.parent))
    if state["trainer"]["best_metric"] is not None:
        state["trainer"]["best_metric"] = 0.0
    if change is not None:
        change(state)
    directory.mkdir()
    torch.save(state, directory / "last.pt")
    return directory / "last.pt"


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_one_difference_is_found_in_its_part_and_nowhere_else(
    original: Path, tmp_path: Path, change: Callable[[State], None]
):
    parts = compare_checkpoints(variant(original, tmp_path / "a"), variant(original, tmp_path / "b", change))
    part, text = CHANGES[change]
    (found,) = [found for found in parts if not found.same]
    assert found.name == part
    assert found.differing == 1
    assert text in found.first


def test_a_copy_is_identical_in_every_part(original: Path, tmp_path: Path):
    shutil.copyfile(original, tmp_path / "last.pt")
    parts = compare_checkpoints(original, tmp_path / "last.pt")
    assert all(part.same for part in parts)
    assert {"weights", "optimizer", "scheduler", "progress", "trainer", "rng", "header"} <= {
        p.name for p in parts
    }
    assert next(part for part in parts if part.name == "weights").tensors == 4


def test_times_of_the_epoch_do_not_count(original: Path, tmp_path: Path):
    def slower(state: State) -> None:
        state["states"]["progress"]["seconds"] += 1.0

    parts = compare_checkpoints(variant(original, tmp_path / "a"), variant(original, tmp_path / "b", slower))
    assert all(part.same for part in parts)


def test_nan_is_the_same_as_nan(original: Path, tmp_path: Path):
    def not_a_number(state: State) -> None:
        state["trainer"]["best_metric"] = float("nan")
        first(state["states"]["model/model"])[0] = float("nan")

    sides = [variant(original, tmp_path / name, not_a_number) for name in "ab"]
    assert all(part.same for part in compare_checkpoints(*sides))


def test_only_the_parts_that_are_asked_for(original: Path, tmp_path: Path):
    sides = variant(original, tmp_path / "a"), variant(original, tmp_path / "b", one_bit_of_torch)
    assert [(part.name, part.same) for part in compare_checkpoints(*sides, only=WEIGHTS)] == [
        ("weights", True)
    ]


def test_a_file_that_one_side_lacks_is_a_difference(original: Path, tmp_path: Path):
    (found,) = compare_checkpoints(original, tmp_path / "last.pt")
    assert not found.same
    assert "does not exist" in found.first
    assert compare_checkpoints(tmp_path / "last.pt", tmp_path / "other" / "last.pt") == []
