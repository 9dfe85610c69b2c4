"""Check that synthetic evidence leads a finding to each of its answers.

A finding asks the measured rows a question, and prints one sentence for each possible answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import Finding, state

Cases = Mapping[str, Mapping[str, Callable[[], MachineEvidence]]]


def assert_answers_reached(findings: Sequence[Finding], cases: Cases) -> None:
    """Assert that each finding gives each of its answers for the evidence made for that answer.

    Args:
        findings: the findings of a section.
        cases: name of a finding -> answer -> function that makes evidence with this answer.
    """
    assert {f.name: set(f.answers) for f in findings} == {n: set(c) for n, c in cases.items()}
    for finding in findings:
        for answer, evidence in cases[finding.name].items():
            said = state(finding, evidence())
            assert said is not None, f"{finding.name}: nothing is said for {answer}"
            assert said.answer == answer, f"{finding.name}: {said.answer}, not {answer}: {said}"
            assert "{" not in said.sentence and said.sentence.endswith("."), said.sentence
