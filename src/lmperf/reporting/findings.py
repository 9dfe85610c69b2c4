"""Findings: sentences of a report that the measured data choose.

A finding asks a question of the evidence: ``values`` computes numbers, ``answer`` chooses the one
answer that they give, and the sentence of that answer is printed. Every possible answer has a
sentence, so that no sentence contradicts its table. A report leaves out a finding whose rows are
missing.

No finding rests on a row whose time may not hold (`marks.doubtful`) or on an unresolved comparison:
``rows_of`` and `speedup.compared` leave these out. Where too little is left, the finding is silent.

    Finding(
        name="bf16_pays",
        question="From which size on does bf16 autocast pay?",
        values=_bf16,
        answer=lambda v: "from" if v["first"] else "nowhere",
        answers={
            "from": "bf16 autocast pays from size {{ first }} on: {{ gain | range('ratio') }}.",
            "nowhere": "bf16 autocast is faster at no size measured.",
        },
        place=SECTION,
    )
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lmperf.reporting import gates, marks
from lmperf.reporting.evidence import MachineEvidence, having
from lmperf.reporting.numbers import Count, Spread
from lmperf.reporting.templates import load_templates
from lmperf.results import Statement
from lmperf.statistics import FASTER, SAME, SLOWER

# Where a finding is printed: among the five to eight of the first screen, below the title (how far
# the numbers can be trusted), in its section of the write-up, or on the page of the section alone.
# A page has all findings of its section.
SHORT, TRUST, SECTION, PAGE = "short", "trust", "section", "page"
PLACES = (SHORT, TRUST, SECTION, PAGE)


class NotMeasured(Exception):
    """The rows that a finding needs are missing: the finding is left out."""


@dataclass(frozen=True)
class Finding:
    """A question to the evidence, with a sentence for every answer.

    Attributes:
        name: unique in the report.
        question: for readers of the code and the tests; reports do not show it.
        values: evidence -> the values of the sentence; raises NotMeasured.
        answer: values -> the name of the answer that holds.
        answers: answer -> sentence, a Jinja template over the values.
        place: SHORT, TRUST, SECTION or PAGE.
    """

    name: str
    question: str
    values: Callable[[MachineEvidence], Mapping[str, Any]]
    answer: Callable[[Mapping[str, Any]], str]
    answers: Mapping[str, str]
    place: str = SECTION


def state(finding: Finding, evidence: MachineEvidence) -> Statement | None:
    """The statement of a finding on this evidence; None if the rows it needs are missing."""
    try:
        values = finding.values(evidence)
    except NotMeasured:
        return None
    answer = finding.answer(values)
    sentence = load_templates().from_string(finding.answers[answer]).render(values)
    return Statement(finding.name, answer, sentence, finding.place, values)


def statements(findings: Sequence[Finding], evidence: MachineEvidence) -> list[Statement]:
    """The statements of all findings that have the rows they need, in the given order."""
    found = [state(finding, evidence) for finding in findings]
    return [statement for statement in found if statement is not None]


def always(_: Mapping[str, Any]) -> str:
    """The name of the answer, ``is``, of a finding that has a single sentence."""
    return "is"


def verdicts(rows: pd.DataFrame) -> dict[str, Any]:
    """Numbers of ``faster`` and ``slower`` rows (Count), and speed-ups as ``gain`` (Spread).

    rows: from ``speedup.compared``, so that all of them are resolved; raises NotMeasured if there
    are none.
    """
    measured(rows)
    found = {name: int((rows["verdict"] == name).sum()) for name in (FASTER, SLOWER)}
    counts = {name: Count(number, len(rows)) for name, number in found.items()}
    return {**counts, "gain": Spread.of(rows["ratio"])}


def all_same(rows: pd.DataFrame) -> bool:
    """Whether all of several speed-ups are ``same``: their two sides are on par."""
    return len(rows) > 0 and bool((rows["verdict"] == SAME).all())


def all_rows(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """All rows of a benchmark; raises NotMeasured if there is no evidence of it."""
    rows = evidence.frame(stem)
    if rows is None:
        raise NotMeasured(stem)
    return rows


def rows_of(evidence: MachineEvidence, stem: str, **where) -> pd.DataFrame:
    """The rows of a benchmark with these column values on which a finding may rest.

    They are valid (``gates.shown``) and not ``marks.doubtful``. Raises NotMeasured if there are
    none.
    """
    return measured(having(sound(evidence, stem), **where))


def sound(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """All rows of a benchmark on which a finding may rest, perhaps none: see ``rows_of``."""
    rows = all_rows(evidence, stem)
    keep = lambda: rows[gates.shown(rows) & ~marks.doubtful(rows, stem)]  # noqa: E731
    return evidence.once(("sound", stem), keep)


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows unchanged; raises NotMeasured if there are none."""
    if rows.empty:
        raise NotMeasured
    return rows
