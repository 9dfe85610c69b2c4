"""Tests of the history of a machine's evidence, in a Git repository with a few commits."""

import csv
import io
import json
import subprocess
from pathlib import Path

import pytest

from lmperf.errors import UserError
from lmperf.evidence.store import write_signed
from lmperf.reporting.history.causes import ANOTHER_RUN
from lmperf.reporting.history.changes import changes
from lmperf.reporting.history.forms import as_text, in_format, table

pytestmark = pytest.mark.process
ROOT = Path(__file__).parents[2]
MACHINE = "nvidia-h200"
FACTS = {"driver": "580", "torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200"}
ROWS = 40


class Checkout:
    """A Git repository with the first rows of one benchmark of the H200."""

    def __init__(self, root: Path):
        self.root = root
        text = (ROOT / f"report/{MACHINE}/evidence/lrpe.csv").read_text()
        self.rows = list(csv.DictReader(io.StringIO(text)))[:ROWS]
        for row in self.rows:
            row |= {"environment": "e1", "commit": "aaaaaaaaaaaa", "marks": "", "clock_mhz": "1900"}
            row["rounds_mhz"] = ";".join(["1900"] * (row["rounds_ms"].count(";") + 1))
        self.environments = {"e1": dict(FACTS)}
        self.git("init", "--quiet")

    def git(self, *arguments):
        who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.root, *who, *arguments], check=True)

    def commit(self, subject: str) -> "Checkout":
        folder = self.root / "report" / MACHINE
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        write_signed(folder / "evidence/lrpe.csv", text.getvalue().encode())
        facts = {"machine": MACHINE, "environments": self.environments}
        (folder / "machine.json").write_text(json.dumps(facts))
        self.git("add", "-A")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self

    def measure(self, factor: float = 1.0, rows=slice(None), **columns):
        """Measure rows again: every round takes `factor` times as long."""
        for place, row in enumerate(self.rows[rows]):
            times = [factor * float(ms) for ms in row["rounds_ms"].split(";")]
            # A round is never repeated to the last digit.
            row["rounds_ms"] = ";".join(str(ms * (1 + 1e-5 * n)) for n, ms in enumerate(times))
            again = [factor * float(ms) for ms in row["again_ms"].split(";") if ms]
            row["again_ms"] = ";".join(map(str, again))
            row["measured_at"] = f"2027-01-01T00:{place:02}:00+00:00"
            row["median_ms"] = str(factor * float(row["median_ms"]))
            row |= columns
        return self

    def changes(self, **options):
        return changes(MACHINE, self.root, **options)


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path).commit("Measure everything")


def causes(step):
    return set(step.rows["cause"])


def test_slower_code_is_attributed_to_the_code(checkout):
    checkout.measure(2.0, slice(10), key="k", commit="bbbbbbbbbbbb").commit("Rewrite the kernel")
    (step,) = checkout.changes()
    assert step.counts == {"slower": 10} and step.compared == 10
    assert causes(step) == {"code (aaaaaaa to bbbbbbb)"}
    assert step.commit.subject == "Rewrite the kernel"


def test_another_torch_is_named_and_code_only_if_it_may_differ(checkout):
    checkout.environments["e2"] = {**FACTS, "torch": "2.13.0", "triton": "3.7.1"}
    new = {"environment": "e2", "key": "k"}
    checkout.measure(0.5, slice(5), **new)
    checkout.measure(0.5, slice(5, 10), **new, commit="bbbbbbbbbbbb").commit("Upgrade torch")
    (step,) = checkout.changes()
    software = "torch 2.11.0 to 2.13.0, Triton 3.6.0 to 3.7.1"
    assert causes(step) == {software, f"{software}, perhaps code (aaaaaaa to bbbbbbb)"}


def test_same_cycles_at_another_clock_are_attributed_to_the_clock(checkout):
    slow = {"clock_mhz": "950"}
    for row in checkout.rows[:10]:
        row["rounds_mhz"] = ";".join(["950"] * (row["rounds_ms"].count(";") + 1))
    checkout.measure(2.0, slice(10), **slow).commit("Measure under a power limit")
    (step,) = checkout.changes()
    assert step.counts == {"clock": 10}
    assert causes(step) == {"clock 1,900 to 950 MHz"}


def test_change_with_equal_keys_is_another_run(checkout):
    checkout.measure(2.0, slice(10)).commit("Measure again")
    (step,) = checkout.changes()
    assert causes(step) == {ANOTHER_RUN}


def test_noise_and_rewritten_keys_are_no_change(checkout):
    for row in checkout.rows:
        row["key"] = "another"
    checkout.commit("Carry keys over")
    assert checkout.changes() == []
    checkout.measure(1.001).commit("Measure again")
    (step,) = checkout.changes()
    assert step.compared == ROWS and step.counts == {} and table(step) is None


def test_missing_rows_stay_missing(checkout):
    rows = checkout.rows
    checkout.rows = rows[:30]
    checkout.commit("Lose rows")
    checkout.rows = rows
    checkout.measure(3.0, slice(30, None)).commit("Measure them again")
    again, lost = checkout.changes()
    assert (lost.gone, lost.new) == (10, 0)
    assert (again.gone, again.new, again.compared) == (0, 10, 0), "nothing to compare with"


def test_row_that_fails_now_is_broken(checkout):
    checkout.measure(1.0, slice(1), status="oom", rounds_ms="", median_ms="").commit("Fail")
    (step,) = checkout.changes()
    assert step.counts == {"broken": 1}


def test_damaged_evidence_of_a_commit_is_not_compared(checkout):
    checkout.measure(2.0).commit("Slower")
    path = checkout.root / "report" / MACHINE / "evidence/lrpe.csv"
    path.write_text(path.read_text().replace("2027-01-01T00:00", "2027-01-01T01:00", 1))
    checkout.git("commit", "--quiet", "-am", "Edit by hand")
    edited, slower = checkout.changes()
    assert "does not match its digest" in edited.damaged["lrpe"] and edited.compared == 0
    assert slower.counts == {"slower": ROWS}


def test_hostile_subject_is_shown_as_text(checkout):
    checkout.measure(2.0, slice(3), key="k").commit("<script>alert(1)</script> | `x`")
    steps = checkout.changes()
    assert "<script>alert(1)</script> | `x`" in as_text(steps)
    assert "<script>" not in in_format(steps, "html")


def test_folder_outside_git_is_an_error(tmp_path):
    with pytest.raises(UserError, match="the history of the evidence cannot be read"):
        changes(MACHINE, tmp_path)
