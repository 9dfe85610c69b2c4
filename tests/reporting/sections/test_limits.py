"""Sentences and head tables of the sections stay within the limits of a write-up."""

import pytest
import synthetic
from sentence_limits import assert_narrow, assert_short

from lmperf.reporting.sections import compose

SECTIONS = ("attention", "flash_attention", "lrpe", "memory", "mixed_precision", "profiles")
MACHINES = {"gpu": synthetic.gpu_evidence, "cpu": synthetic.cpu_evidence}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("stem", SECTIONS)
def test_sentences_and_head_table_fit_a_write_up(machine, stem):
    section = compose(stem, MACHINES[machine](), drawn=False)
    assert_narrow(section.head)
    assert section.statements
    for statement in section.statements:
        assert_short(statement)
