import pytest

from support.one_thread import one_torch_thread
from support.runs import tiny, train

__all__ = ["one_torch_thread"]


@pytest.fixture
def followed(tmp_path):
    """A run of six steps that the given trackers follow, with a metric that is a table."""

    def run(*trackers, **sections):
        config = {**tiny(**sections), "callbacks": [], "trackers": list(trackers)}
        return train({**config, "metrics": [{"name": "confusion_matrix"}]}, tmp_path).run_dir

    return run
