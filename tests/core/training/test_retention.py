"""Which names a checkpoint gets, and which earlier files it makes superfluous."""

import math

import pytest

from trainlattice.contracts.settings import CheckpointSettings
from trainlattice.training.retention import Retention, epoch_name, step_name

NAN, INF = math.nan, math.inf


def retention(direction="min", **settings):
    return Retention(CheckpointSettings(**settings), direction)


def names_of(*steps):
    return [step_name(step) for step in steps]


def saved(kept, step, value=None, *, epoch=None, improved=False, last=True):
    """One save as the Trainer makes it; the names of its file, and those of files that go."""
    names = kept.last(step, epoch) if last else []
    if value is not None:
        names += kept.ranked(value, step, improved=improved)
    names = list(dict.fromkeys(names))
    return names, kept.written(names, value)


class Directory:
    """The files that stand after saves of validated checkpoints at steps 1, 2, 3, ..."""

    def __init__(self, kept):
        self.kept, self.files, self.best, self.step = kept, set(), None, 0

    def save(self, value, **more):
        self.step += 1
        lower = self.kept.direction == "min"
        better = self.best is None or (value < self.best if lower else value > self.best)
        improved = math.isfinite(value) and better
        if improved:
            self.best = value
        names, gone = saved(self.kept, self.step, value, improved=improved, **more)
        self.files = (self.files | set(names)) - set(gone)
        return sorted(self.files)


def after(values, **settings):
    """What stands after a save for each value."""
    directory = Directory(retention(**settings))
    return [directory.save(value) for value in values]


def test_names_sort_as_numbers_do():
    assert step_name(7) == "step-00000007.pt"
    assert epoch_name(12) == "epoch-0012.pt"
    assert sorted([step_name(10), step_name(9)]) == names_of(9, 10)
    assert step_name(123456789) == "step-123456789.pt"


def test_by_default_there_are_last_and_best_and_nothing_ever_goes():
    kept = retention()
    assert saved(kept, 3, 0.5, epoch=1, improved=True) == (["last.pt", "best.pt"], [])
    assert saved(kept, 6, 0.9, epoch=2) == (["last.pt"], [])
    assert saved(kept, 7, 0.1, improved=True, last=False) == (["best.pt"], [])


@pytest.mark.parametrize("keep", [2, 3])
def test_the_newest_are_kept(keep):
    kept, files = retention(keep_last=keep), []
    for step in range(1, 7):
        names, gone = saved(kept, step)
        assert names == ["last.pt", step_name(step)]
        files = [name for name in [*files, step_name(step)] if name not in gone]
        assert files == names_of(*range(max(1, step - keep + 1), step + 1))


def test_all_are_kept():
    kept = retention(keep_last=None)
    assert [saved(kept, step) for step in range(5)] == [
        (["last.pt", step_name(step)], []) for step in range(5)
    ]


def test_the_same_step_saved_twice_counts_once():
    """After a validation in the middle of an epoch, by a signal, and at the epoch's end."""
    kept = retention(keep_last=2)
    saved(kept, 1)
    saved(kept, 2)
    assert saved(kept, 2)[1] == []
    assert saved(kept, 3)[1] == names_of(1)


@pytest.mark.parametrize(("epoch", "named"), [(None, False), (1, False), (2, True), (3, False), (4, True)])
def test_every_second_epoch_has_a_name_of_its_own_that_never_goes(epoch, named):
    kept = retention(keep_every_epochs=2)
    names, gone = saved(kept, 5, epoch=epoch)
    assert names == ["last.pt"] + ["epoch-0002.pt"] * (epoch == 2) + ["epoch-0004.pt"] * (epoch == 4)
    assert (len(names) == 2) == named
    assert gone == []
    assert saved(kept, 6, epoch=7) == (["last.pt"], [])


@pytest.mark.parametrize(
    ("direction", "values"),
    [("min", [5.0, 3.0, 4.0, 6.0, 1.0, 2.0]), ("max", [-5.0, -3.0, -4.0, -6.0, -1.0, -2.0])],
)
def test_the_three_best_are_kept_whatever_their_order(direction, values):
    directory = Directory(retention(direction, keep_best=3))
    found = [directory.save(value) for value in values]
    both = ["best.pt", "last.pt"]
    assert found == [
        [*both, *names_of(1)],
        [*both, *names_of(1, 2)],
        [*both, *names_of(1, 2, 3)],
        [*both, *names_of(1, 2, 3)],  # 6 is the fourth
        [*both, *names_of(2, 3, 5)],
        [*both, *names_of(2, 5, 6)],
    ]


@pytest.mark.parametrize("direction", ["min", "max"])
def test_of_equal_values_the_first_are_kept(direction):
    found = after([1.0, 1.0, 1.0], direction=direction, keep_best=2)
    assert found[-1] == ["best.pt", "last.pt", *names_of(1, 2)]
    assert retention(keep_best=2).ranked(1.0, 4, improved=False) == names_of(4)
    kept = retention(direction, keep_best=2)
    for step in (1, 2):
        saved(kept, step, 1.0)
    assert kept.ranked(1.0, 3, improved=False) == []


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_is_never_among_the_best(value):
    kept = retention(keep_best=3)
    assert kept.ranked(value, 1, improved=False) == []
    assert saved(kept, 1, value) == (["last.pt"], [])
    assert saved(kept, 2, 0.5, improved=True) == (["last.pt", "best.pt", *names_of(2)], [])


def test_none_of_the_best_is_kept():
    assert after([3.0, 2.0, 1.0], keep_best=0) == [["last.pt"]] * 3


def test_with_one_best_it_has_no_number_beside_the_newest():
    """best.pt is the best one: step 1 goes when two newer ones stand."""
    assert after([1.0, 2.0, 3.0, 4.0], keep_last=2)[-1] == ["best.pt", "last.pt", *names_of(3, 4)]


def test_a_file_stays_as_long_as_it_is_among_the_newest_or_the_best():
    found = after([1.0, 2.0, 5.0, 4.0, 3.0], keep_last=2, keep_best=2)
    assert [names[2:] for names in found] == [
        names_of(1),
        names_of(1, 2),
        names_of(1, 2, 3),
        names_of(1, 2, 3, 4),
        names_of(1, 2, 4, 5),
    ]


def test_a_newest_file_that_leaves_the_best_stays_and_goes_later():
    """Step 2 is overtaken by step 3 while it is among the two newest."""
    found = after([2.0, 1.5, 1.0, 9.0], keep_last=2, keep_best=2)
    assert [names[2:] for names in found] == [
        names_of(1),
        names_of(1, 2),
        names_of(2, 3),
        names_of(2, 3, 4),
    ]


def test_the_best_of_validations_inside_epochs_are_kept_beside_last():
    kept = retention(keep_best=2)
    assert saved(kept, 2, 3.0, improved=True, last=False) == (["best.pt", *names_of(2)], [])
    assert saved(kept, 4, 2.0, improved=True, last=False) == (["best.pt", *names_of(4)], [])
    assert saved(kept, 6, 2.5, last=False) == (names_of(6), names_of(2))
    assert saved(kept, 8, 9.0, last=False) == ([], [])
