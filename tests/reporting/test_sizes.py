"""Model sizes in the report: each has one short name, introduced once with its parameters."""

from __future__ import annotations

import pandas as pd
import pytest

from lmperf.names import size_in_full, size_words
from lmperf.reporting.evidence import MachineEvidence


@pytest.mark.parametrize(
    ("name", "short"),
    [("0.13B", "small"), ("small", "small"), ("xl-2026", "3.4B"), ("2.7B", "3.4B"), ("xl", "2.0B")],
)
def test_evidence_shows_sizes_by_short_name(name, short):
    rows = pd.DataFrame({"size": [name], "implementation": ["eager"], "phase": ["forward"]})
    evidence = MachineEvidence("m", frames={"end_to_end": rows})
    assert list(evidence.frames["end_to_end"]["size"]) == [short]
    assert size_words(short) == short


def test_size_is_introduced_with_its_parameters():
    assert (size_in_full("large"), size_in_full("3.4B")) == ("large (0.97B)", "3.4B")


@pytest.mark.machine
@pytest.mark.parametrize("rendered", ["gpu"], indirect=True)
def test_write_up_introduces_each_size_once(rendered):
    text = rendered[2]["report.md"]
    assert [text.count(words) for words in ("small (0.13B)", "large (0.97B)")] == [1, 1]
