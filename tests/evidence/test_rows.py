"""What the rows of evidence say: whether their time holds, and their final status."""

import pytest

from lmperf.evidence.rows import as_read, is_loaded
from lmperf.gate import UNCHECKED

FAILED = {"status": "failed_check", "reason": "it differs"}


@pytest.mark.parametrize(
    ("columns", "loaded"),
    [
        ({"other_load": "0.2"}, True),
        ({"other_load": "0.09"}, False),
        ({"other_load": ""}, False),
        ({"other_load": "0.2", "gpus": "GPU-1"}, False),
        ({"other_load": "0.2", "gpus": "GPU-1", "bound": "device"}, False),
        ({"other_load": "0.2", "gpus": "GPU-1", "bound": "host"}, True),
    ],
)
def test_load_counts_where_a_row_waits_for_the_host(columns, loaded):
    assert is_loaded(columns) == loaded


def test_row_whose_check_lacks_memory_is_unchecked():
    assert as_read({**FAILED, "reason": UNCHECKED})["status"] == "unchecked"
    assert as_read(FAILED) == FAILED
