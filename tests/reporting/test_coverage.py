"""The tables that the report owes: measured, partly, explained, or a gap that is not silent."""

import re
from pathlib import Path

import pandas as pd
import pytest

from lmperf.reporting import coverage
from lmperf.reporting.coverage import OWED, Rests, Shown, having
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.render import doubts

LACKING = pd.DataFrame([{"size": "xl", "implementation": "eager", "phase": "forward"}])


def state(evidence, table="E1", text="**Table E1: ...**", **rests):
    shown = Shown("end_to_end", text, {table: Rests(**rests)})
    return next(s for s in coverage.states(evidence, [shown]) if s.table == table)


def without(evidence, stem):
    frames = {name: frame for name, frame in evidence.frames.items() if name != stem}
    return MachineEvidence("m", {"preset": "gpu"}, frames)


def test_a_table_whose_rows_are_there_is_measured(gpu):
    found = state(gpu)
    assert (found.words, found.gap) == ("measured", False)
    assert found.rows == len(gpu.frame("end_to_end")) and 0 < found.cells < found.rows
    assert found.failed == "none"


def test_rows_that_lack_make_it_partly_measured(gpu):
    gpu.lacking["end_to_end"] = LACKING
    assert re.fullmatch(r"partly: \d+ of \d+ rows", state(gpu).words)
    of_others = state(gpu, where=having(implementation=("compiled",)))
    assert of_others.words == "measured", "what lacks belongs to another table"


def test_measured_but_not_shown_is_a_gap(gpu):
    found = state(gpu, text="no caption")
    assert found.gap and "does not show it" in found.words
    elsewhere = state(gpu, text="no caption", shown_in="in the overview")
    assert not elsewhere.gap and elsewhere.words == "measured; in the overview"


def test_what_is_neither_there_nor_asked_for_is_a_gap_unless_it_is_explained(gpu):
    nothing = having(implementation=("unheard of",))
    gpu.facts["preset"] = "gpu"
    assert state(gpu, where=nothing).gap
    assert not state(gpu, where=nothing, unless="it needs eight GPUs").gap
    gpu.facts["preset"] = "cpu"
    assert state(gpu, where=nothing).words == "not measured: the cpu preset leaves it out"
    gpu.facts["preset"] = "gpu"
    gpu.left_out["end_to_end"] = "the configuration leaves it out"
    assert not state(gpu, where=nothing).gap


def test_what_is_asked_for_and_not_there_is_accounted_for_as_missing(gpu):
    evidence = without(gpu, "end_to_end")
    evidence.lacking["end_to_end"] = LACKING
    assert state(evidence).words == "not measured: none of its 1 rows is there"


def test_damaged_evidence_and_rows_that_all_failed_are_said(gpu):
    gpu.damaged["end_to_end"] = "the digest differs"
    assert state(gpu).words == "withheld: its evidence is damaged"
    evidence = without(gpu, "end_to_end")
    evidence.frames["end_to_end"] = gpu.frames["end_to_end"].assign(status="oom")
    found = state(evidence)
    assert found.words == "nothing that may be shown"
    assert re.fullmatch(r"\d+ out of memory", found.failed)


def test_a_table_that_nobody_shows_is_a_gap():
    found = coverage.states(MachineEvidence("bare"), [])
    assert len(found) == len(OWED) and all(s.gap for s in found)
    assert coverage.gaps(found)[0].startswith("table E1 (forward, backward")


def test_undeclared_a_table_belongs_to_the_section_with_its_caption(gpu):
    shown = [Shown("memory", "**Table E1: stray**", {}), Shown("end_to_end", "", {})]
    assert coverage.states(gpu, shown)[0].section == "memory"


@pytest.mark.parametrize("table", OWED)
def test_every_table_has_a_title(table):
    assert re.fullmatch(r"[A-Z]\d", table) and OWED[table][0]


def test_verify_is_told_of_gaps_and_of_contradicted_claims(gpu, templates: Path):
    gpu.facts["preset"] = "gpu"
    gpu.frames["end_to_end"].loc[lambda f: f["phase"] == "backward", "median_ms"] *= 3
    gaps, contradicted = doubts(gpu, templates)
    assert not [gap for gap in gaps if gap.startswith("table E1")]
    assert any("Backward takes 6.0" in claim for claim in contradicted)
