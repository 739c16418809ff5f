"""The names of checkpoint files."""

import pytest

from trainlattice.checkpoint.names import epoch_in, epoch_name, purpose_of, step_in, step_name


@pytest.mark.parametrize("number", [0, 7, 12345, 123456789])
def test_a_number_is_found_again_in_its_name(number):
    assert (step_in(step_name(number)), epoch_in(step_name(number))) == (number, None)
    assert (step_in(epoch_name(number)), epoch_in(epoch_name(number))) == (None, number)


@pytest.mark.parametrize(
    "name", ["step-.pt", "step-1.pt.tmp", "my-step-1.pt", "step-1", "step-٣.pt", "epoch-1\n.pt"]
)
def test_what_only_resembles_a_numbered_name_is_none(name):
    assert (step_in(name), epoch_in(name), purpose_of(name)) == (None, None, "other")


def test_a_name_tells_what_a_file_is_for():
    names = ["last.pt", "best.pt", "emergency.pt", "nonfinite.pt", step_name(3), epoch_name(3), "mine.pt"]
    assert [purpose_of(name) for name in names] == [
        *("last", "best", "emergency", "nonfinite", "numbered", "numbered", "other"),
    ]
