"""Collectives on two gloo processes: right results pass, one wrong element does not."""

import pytest
import torch

from lmperf.benchmark import Rank, Unsupported, WrongResult
from lmperf.distributed.collectives import LIBRARY, Message

ALONE = Rank(0, 1, "cpu", "gloo")


@pytest.mark.process
def test_cases_of_a_cell_share_buffers_and_pass_their_gates(two_ranks):
    for found in (rank["cells"] for rank in two_ranks):
        assert [*found] == [(dtype, name) for dtype in ("float32", "bfloat16") for name in LIBRARY]
        for columns in found.values():
            assert columns["status"] == "ok" and columns["error_wrong_elements"] == 0


def test_missing_reduction_makes_almost_all_elements_wrong():
    message = Message("float32", 2400, Rank(0, 2, "cpu", "gloo"), seed=7)
    assert message.check("all_reduce", message.source).errors["wrong_elements"] > 590


def test_gate_fails_with_a_single_wrong_element():
    message = Message("float32", 4000, ALONE, seed=1)
    right = message.expected("all_reduce")
    assert message.check("all_reduce", right).passed
    right[500] += 1
    gate = message.check("all_reduce", right)
    assert gate.columns["status"] == "failed_check" and gate.columns["max_error"] == 1
    right[3] = torch.nan
    assert message.check("all_reduce", right).errors == {"wrong_elements": 2}


def test_result_of_another_dtype_or_shape_is_refused():
    message = Message("float32", 4000, ALONE, seed=1)
    for wrong in (message.source.bfloat16(), message.source[:-1], None):
        with pytest.raises(WrongResult):
            message.check("all_reduce", wrong)


def test_message_that_does_not_split_evenly_is_unsupported():
    with pytest.raises(Unsupported, match="1000 bytes cannot be split among 8 ranks"):
        Message("float32", 1000, Rank(0, 8, "cpu", "gloo"), seed=1)
