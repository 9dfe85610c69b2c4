"""The tables that the report owes: measured, in part, explained, or a gap that is not silent."""

from __future__ import annotations

import pandas as pd
import pytest

from lmperf.reporting import coverage
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections import Composed, Section
from lmperf.reporting.tables import Owed, TableGroup, from_frame

LACKING = pd.DataFrame([{"size": "xl", "implementation": "eager", "phase": "forward"}])
SHOWN = [from_frame("times", pd.DataFrame({"n": [1]}))]


def state(evidence, parts=SHOWN, **owed):
    table = TableGroup("E1", "a step", lambda _: parts, Owed(**owed))
    section = Section(tables=(table,))
    composed = Composed("end_to_end", section, evidence, ["end_to_end"], drawn=False)
    return coverage.states(evidence, [composed])[0]


def without(evidence, stem):
    frames = {name: frame for name, frame in evidence.frames.items() if name != stem}
    return MachineEvidence("m", {"preset": "gpu"}, frames)


def of(implementation):
    return lambda frame: frame["implementation"] == implementation


def test_cells_measured_are_counted_of_those_owed(gpu):
    found = state(gpu, cell=("size", "context_length"))
    assert (found.words, found.gap, found.measured, found.owed) == ("measured", False, 20, 20)


def test_what_lacks_is_owed(gpu_copy):
    gpu_copy.lacking["end_to_end"] = LACKING
    found = state(gpu_copy, cell=("size",))
    assert (found.words, found.measured, found.owed) == ("measured", 5, 5)
    gpu_copy.lacking["end_to_end"] = LACKING.assign(size="huge")
    found = state(gpu_copy, cell=("size",))
    assert (found.words, found.measured, found.owed) == ("in part", 5, 6)
    assert state(gpu_copy, where=of("compiled"), cell=("size",)).words == "measured", (
        "of another table"
    )


def test_a_table_is_stale_by_its_own_rows(gpu_copy):
    gpu_copy.stale["end_to_end"] = ["a row of a compiled model"]
    rows = gpu_copy.frames["end_to_end"]
    gpu_copy.frames["end_to_end"] = rows.assign(stale=rows["implementation"] == "compiled")
    assert state(gpu_copy, where=of("eager")).words == "measured"
    assert state(gpu_copy, where=of("compiled")).words == "measured, stale"


def test_where_all_rows_are_stale_each_table_is(gpu_copy):
    gpu_copy.stale["end_to_end"] = ["each row"]
    assert state(gpu_copy, where=of("eager")).words == "measured, stale"


def test_measured_but_not_shown_is_a_gap(gpu):
    found = state(gpu, parts=[])
    assert found.gap and "does not show it" in found.words
    assert coverage.gaps([found]) == [f"table E1 (a step): {found.words}"]


def test_what_is_neither_there_nor_asked_for_is_a_gap_unless_it_is_explained(gpu_copy):
    nothing = of("unheard of")
    gpu_copy.facts["preset"] = "gpu"
    assert state(gpu_copy, where=nothing).gap
    assert (
        state(gpu_copy, where=nothing, unless="it needs eight GPUs").words == "it needs eight GPUs"
    )
    gpu_copy.facts["preset"] = "cpu"
    assert state(gpu_copy, where=nothing).words == "not in the cpu preset"
    gpu_copy.facts["preset"] = "gpu"
    gpu_copy.left_out["end_to_end"] = "the configuration leaves it out"
    assert not state(gpu_copy, where=nothing).gap


def test_what_is_asked_for_and_not_there_is_not_measured_yet(gpu):
    evidence = without(gpu, "end_to_end")
    evidence.lacking["end_to_end"] = LACKING
    found = state(evidence, cell=("size",))
    assert (found.words, found.measured, found.owed) == ("not measured yet", 0, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e.damaged.update(end_to_end="digest"), "withheld: its evidence is damaged"),
        (
            lambda e: e.frames.update(end_to_end=e.frames["end_to_end"].assign(status="oom")),
            "nothing that may be shown",
        ),
    ],
)
def test_damaged_evidence_and_rows_that_all_failed_are_said(gpu_copy, change, words):
    change(gpu_copy)
    assert state(gpu_copy).words == words
