"""Claims: sentences with numbers that are true of the evidence, or that say they are not.

A claim holds a text (Jinja, with the filters of the templates), a function that computes its values
from the evidence and a predicate over those values. It is rendered as a sentence when the predicate
holds, as contradicted with its values when it does not, and as not measured when its rows are
missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from jinja2.sandbox import SandboxedEnvironment

from lmperf.reporting import gates, numbers
from lmperf.reporting.evidence import MachineEvidence

VERDICTS = (
    "{% if faster %} Faster at {{ faster | listed }}.{% endif %}"
    "{% if same %} No difference at {{ same | listed }}.{% endif %}"
    "{% if mixed %} Faster in some cells and not in others at {{ mixed | listed }}.{% endif %}"
    "{% if slower %} Slower at {{ slower | listed }}.{% endif %}"
)
COUNTED = "(?:cell|row|fit|step|pass|shape|length|case|comparison|context|position|run|job)"
ALL_OF_ONE = re.compile(rf"\b[Aa]ll {1} ({COUNTED})s\b")
ONE = re.compile(rf"(?<![\d.,:])\b({1} {COUNTED})s\b")
SAME_TO_SAME = re.compile(r"(?<![\d.,])(?P<value>\d[\d.,]*(?: %|×)?) to (?P=value)(?![\d%×])")
TRUE, CONTRADICTED, MISSING = "true", "contradicted", "missing"


class NotMeasured(Exception):
    """The rows that a claim needs are not there; the message says which."""


@dataclass(frozen=True)
class Claim:
    """A sentence over the evidence.

    Attributes:
        name: key by which a template refers to it.
        text: the sentence, a Jinja template over the values.
        values: evidence -> values; raises NotMeasured.
        holds: values -> whether the sentence is true.
        about: what is not measured when the rows are missing.
        instead: what the data say when the claim is contradicted (a Jinja template).
        summary: whether it belongs to the main findings.
    """

    name: str
    text: str
    values: Callable[[MachineEvidence], Mapping[str, Any]]
    holds: Callable[[Mapping[str, Any]], bool]
    about: str
    instead: str
    summary: bool = False


@dataclass(frozen=True)
class Judgement:
    """A claim held against the evidence: its state and the sentence to print."""

    name: str
    state: str
    sentence: str
    summary: bool

    def __str__(self) -> str:
        return self.sentence


def judge(claim: Claim, evidence: MachineEvidence, environment: SandboxedEnvironment) -> Judgement:
    """Hold one claim against the evidence."""
    try:
        values = claim.values(evidence)
    except NotMeasured as missing:
        sentence = f"**Not measured:** {claim.about}: {missing}."
        return Judgement(claim.name, MISSING, sentence, claim.summary)
    stated = _one(environment.from_string(claim.text).render(values))
    if claim.holds(values):
        return Judgement(claim.name, TRUE, stated, claim.summary)
    measured = _one(environment.from_string(claim.instead).render(values))
    sentence = f"**Contradicted by the data:** “{stated}” {measured}"
    return Judgement(claim.name, CONTRADICTED, sentence, claim.summary)


def _one(sentence: str) -> str:
    """What is one as one: ``in the one cell``, ``over 1 fit``, and a range of one value as it."""
    sentence = SAME_TO_SAME.sub(lambda found: found["value"], sentence)
    sentence = ALL_OF_ONE.sub(lambda found: f"the one {found[1]}", sentence)
    return ONE.sub(lambda found: found[1], sentence)


def frame_of(evidence: MachineEvidence, stem: str) -> pd.DataFrame:
    """All rows of ``stem``; raises NotMeasured when there is no evidence of it."""
    frame = evidence.frame(stem)
    if frame is None:
        raise NotMeasured(f"no evidence of `{stem}`")
    return frame


def rows_of(evidence: MachineEvidence, stem: str, **where) -> pd.DataFrame:
    """The rows of ``stem`` whose columns have the given values and whose timing may be shown.

    Raises NotMeasured, naming what is missing, when there is none.
    """
    frame = frame_of(evidence, stem)
    frame = evidence.once(("shown", stem), lambda: frame[gates.shown(frame)])
    wanted = pd.Series(True, frame.index)
    for column, value in where.items():
        wanted &= frame[column] == value
    frame = frame[wanted]
    if frame.empty:
        wanted = numbers.listed(f"{column} {value}" for column, value in where.items())
        raise NotMeasured(f"no row of `{stem}` with {wanted} may be shown")
    return frame
