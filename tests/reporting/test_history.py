"""The history of a machine's evidence, in a Git repository with a few commits."""

import json
from pathlib import Path

import planted
import pytest
import repository

from lmperf.evidence.store import write_view
from lmperf.reporting.comparison import ANOTHER_RUN
from lmperf.reporting.evidence import Evidence
from lmperf.reporting.sections.history import SHALLOW, History, steps

pytestmark = pytest.mark.process
MACHINE = "nvidia-h200"
ROWS = 20


class Checkout:
    """A Git repository with rows of one benchmark."""

    def __init__(self, root: Path):
        self.root = root
        columns = {"commit": "aaaaaaaaaaaa", "clock_mhz": 1900, "key": "first"}
        self.rows = [planted.row("lrpe", 1 + n, shape=f"{8 + n}", **columns) for n in range(ROWS)]
        for row in self.rows:
            row.pop("stem")
        self.environments = {"e1": dict(planted.H200)}
        repository.git(root, "init", "-q")

    def commit(self, subject: str) -> "Checkout":
        folder = self.root / "report" / MACHINE
        write_view(folder / "evidence/lrpe.csv", self.rows)
        facts = {"machine": MACHINE, "preset": "gpu", "environments": self.environments}
        (folder / "machine.json").write_text(json.dumps(facts))
        repository.commit(self.root, subject)
        return self

    def measure(self, factor: float = 1.0, rows=slice(None), **columns):
        """Measure rows again: every round takes `factor` times as long."""
        for place, row in enumerate(self.rows[rows]):
            times = [factor * float(ms) for ms in row["rounds_ms"].split(";")]
            # A round is never repeated to the last digit.
            row["rounds_ms"] = ";".join(str(ms * (1 + 1e-5 * n)) for n, ms in enumerate(times))
            row["measured_at"] = f"2027-01-01T00:{place:02}:00+00:00"
            for name in ("median_ms", "low_ms", "high_ms"):
                row[name] = str(factor * float(row[name]))
            row |= columns
        return self

    def steps(self):
        return steps(MACHINE, self.root / "report")


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path).commit("Measure everything")


def causes(step):
    return {*step.comparison.rows["cause"]} - {""}


def test_slower_code_is_attributed_to_the_code(checkout):
    checkout.measure(2.0, slice(10), key="k", commit="bbbbbbbbbbbb").commit("Rewrite the kernel")
    (step,) = checkout.steps()
    assert step.counts == {"slower": 10} and len(step.comparison.rows) == 10
    assert causes(step) == {"code (aaaaaaa to bbbbbbb)"}
    assert step.summary[-1] == "Cause of 10 changes: code (aaaaaaa to bbbbbbb)."
    assert step.commit.subject == "Rewrite the kernel"


def test_noise_and_rewritten_keys_are_no_change(checkout):
    for row in checkout.rows:
        row["key"] = "another"
    checkout.commit("Carry keys over")
    assert checkout.steps() == []
    checkout.measure(1.001).commit("Measure again")
    (step,) = checkout.steps()
    assert len(step.comparison.rows) == ROWS and step.counts == {} and step.table is None
    checkout.measure(2.0, slice(3)).commit("Measure some again")
    assert causes(checkout.steps()[0]) == {ANOTHER_RUN}


def test_damaged_evidence_of_a_commit_is_not_compared(checkout):
    checkout.measure(2.0).commit("Slower")
    path = checkout.root / "report" / MACHINE / "evidence/lrpe.csv"
    path.write_text(path.read_text().replace("2027-01-01T00:00", "2027-01-01T01:00", 1))
    repository.commit(checkout.root, "Edit by hand")
    edited, slower = checkout.steps()
    assert "line 2 is damaged" in edited.damaged["lrpe"] and edited.comparison.rows.empty
    assert "lrpe: not compared" in edited.summary[0]
    assert slower.counts == {"slower": ROWS}


def test_shallow_clone_says_that_older_commits_are_unknown(checkout, tmp_path):
    checkout.measure(2.0).commit("Slower")
    for name, depth, words in (("part", ["--depth", "1"], SHALLOW), ("whole", [], "")):
        url = f"file://{checkout.root}"
        repository.git(tmp_path, "clone", "-q", *depth, url, str(tmp_path / name))
        history = History(Evidence(MACHINE, {}, report=tmp_path / name / "report"))
        assert history.read[1] == words and len(history.read[0]) == (not words)
