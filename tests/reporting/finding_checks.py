"""Checks that every answer of a finding has a sentence and evidence that reaches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.findings import Finding, state

Cases = Mapping[str, Mapping[str, Callable[[], MachineEvidence]]]


def assert_answers_reached(findings: Sequence[Finding], cases: Cases) -> None:
    """Assert that each answer of each finding is given for the evidence made for it.

    Args:
        findings: the findings of a section.
        cases: finding -> answer -> function that makes evidence with this answer.
    """
    assert {f.name: set(f.answers) for f in findings} == {n: set(c) for n, c in cases.items()}
    for finding in findings:
        for answer, evidence in cases[finding.name].items():
            said = state(finding, evidence())
            assert said is not None, f"{finding.name}: nothing is said for {answer}"
            assert said.answer == answer, f"{finding.name}: {said.answer}, not {answer}: {said}"
            assert "{" not in said.sentence and said.sentence.endswith("."), said.sentence
