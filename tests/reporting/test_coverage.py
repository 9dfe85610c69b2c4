"""The state of each table in the index of tables: measured, partly measured, or a gap.

A table owes the cells that are configured or measured. A gap is a table that has rows and does not
show them, or that has neither rows nor a reason why.
"""

from __future__ import annotations

import pandas as pd
import pytest

from lmperf.reporting import coverage
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections import Composed, Section
from lmperf.reporting.tables import Owed, TableGroup, from_frame

LACKING = pd.DataFrame([{"size": "2.0B", "implementation": "eager", "phase": "forward"}])
SHOWN = [from_frame("times", pd.DataFrame({"n": [1]}))]


def state_of(evidence, parts=SHOWN, **owed):
    table = TableGroup("E1", "a step", lambda _: parts, Owed(**owed))
    section = Section(tables=(table,))
    composed = Composed("end_to_end", section, evidence, ["end_to_end"], drawn=False)
    return coverage.states(evidence, [composed])[0]


def without(evidence, stem):
    frames = {name: frame for name, frame in evidence.frames.items() if name != stem}
    return MachineEvidence("m", {"preset": "gpu"}, frames)


def of_implementation(implementation):
    return lambda frame: frame["implementation"] == implementation


def test_state_counts_measured_cells_and_owed_cells(gpu):
    found = state_of(gpu, cell=("size", "context_length"))
    assert (found.words, found.gap, found.measured, found.owed) == ("measured", False, 20, 20)


def test_configured_cells_without_rows_count_as_owed(gpu_copy):
    gpu_copy.lacking["end_to_end"] = LACKING
    found = state_of(gpu_copy, cell=("size",))
    assert (found.words, found.measured, found.owed) == ("measured", 5, 5)
    gpu_copy.lacking["end_to_end"] = LACKING.assign(size="huge")
    found = state_of(gpu_copy, cell=("size",))
    assert (found.words, found.measured, found.owed) == ("partly measured", 5, 6)
    assert (
        state_of(gpu_copy, where=of_implementation("compiled"), cell=("size",)).words == "measured"
    ), "of another table"


def test_table_is_stale_only_if_rows_it_shows_are_stale(gpu_copy):
    gpu_copy.stale["end_to_end"] = ["a row of a compiled model"]
    rows = gpu_copy.frames["end_to_end"]
    gpu_copy.frames["end_to_end"] = rows.assign(stale=rows["implementation"] == "compiled")
    assert state_of(gpu_copy, where=of_implementation("eager")).words == "measured"
    assert state_of(gpu_copy, where=of_implementation("compiled")).words == "measured, stale"


def test_table_that_does_not_show_its_rows_is_a_gap(gpu):
    found = state_of(gpu, parts=[])
    assert found.gap and "does not show it" in found.words
    assert coverage.gaps([found]) == [f"table E1 (a step): {found.words}"]


def test_unconfigured_cells_are_a_gap_unless_explained(gpu_copy):
    nothing = of_implementation("unheard of")
    gpu_copy.facts["preset"] = "gpu"
    assert state_of(gpu_copy, where=nothing).gap
    assert (
        state_of(gpu_copy, where=nothing, unless="it needs eight GPUs").words
        == "it needs eight GPUs"
    )
    gpu_copy.facts["preset"] = "cpu"
    assert state_of(gpu_copy, where=nothing).words == "not in the cpu preset"
    gpu_copy.facts["preset"] = "gpu"
    gpu_copy.left_out["end_to_end"] = "the configuration leaves it out"
    assert not state_of(gpu_copy, where=nothing).gap


def test_configured_cells_without_rows_are_not_measured_yet(gpu):
    evidence = without(gpu, "end_to_end")
    evidence.lacking["end_to_end"] = LACKING
    found = state_of(evidence, cell=("size",))
    assert (found.words, found.measured, found.owed) == ("not measured yet", 0, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e.damaged.update(end_to_end="digest"), "withheld: its evidence is damaged"),
        (
            lambda e: e.frames.update(end_to_end=e.frames["end_to_end"].assign(status="oom")),
            "no row with a valid result",
        ),
    ],
)
def test_damaged_evidence_and_failed_rows_are_reported(gpu_copy, change, words):
    change(gpu_copy)
    assert state_of(gpu_copy).words == words


def test_section_for_several_devices_is_absent_from_one_device(gpu, monkeypatch):
    monkeypatch.setattr("lmperf.benchmark.Benchmark.least_devices", 2)
    evidence = without(gpu, "end_to_end")
    table = TableGroup("E1", "a step", lambda _: [], Owed())
    section = Composed("end_to_end", Section(tables=(table,)), evidence, ["end_to_end"], False)
    assert coverage.states(evidence, [section]) == []
    evidence.lacking["end_to_end"] = LACKING
    assert [found.words for found in coverage.states(evidence, [section])] == ["not measured yet"]
