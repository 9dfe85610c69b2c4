"""The method's own findings: each answer on evidence that reaches it."""

import synthetic
from answers import check_answers

from lmperf.reporting.sections.method import SECTION


def evidence(**changes):
    def make():
        made = synthetic.cpu_evidence()
        for name, value in changes.items():
            getattr(made, name)["attention"] = value
        return made

    return make


def rows(**columns):
    def make():
        made = synthetic.cpu_evidence()
        made.frames["attention"] = made.frames["attention"].assign(**columns)
        return made

    return make


def test_every_answer_is_reached():
    check_answers(
        SECTION.findings,
        {
            "limits": {
                "stale": evidence(stale=["a row"]),
                "missing": evidence(missing=["a row"]),
                "red": rows(status="failed_check", marks="loaded"),
                "loaded": rows(marks="capped;loaded"),
                "marks": rows(marks="capped"),
                "none": synthetic.cpu_evidence,
            },
            "balance": {"is": synthetic.cpu_evidence},
        },
    )
