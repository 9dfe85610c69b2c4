"""What is added to a row when evidence is read."""

import shutil
from pathlib import Path

from lmperf.config import load_config
from lmperf.evidence.as_read import as_read
from lmperf.evidence.plan import evidence_of
from lmperf.evidence.project import Project
from lmperf.evidence.review import review
from lmperf.gate import UNCHECKED
from lmperf.reporting.evidence import Evidence

ROOT = Path(__file__).parents[2]
MACHINE = "nvidia-h200"


def test_other_failures_stay_as_they_are():
    for row in ({"status": "failed_check", "reason": "wrong"}, {"status": "oom"}):
        assert as_read(row) == row


def test_row_whose_check_lacks_memory_is_not_called_wrong(tmp_path):
    source, copied = (root / "report" / MACHINE for root in (ROOT, tmp_path))
    (copied / "evidence").mkdir(parents=True)
    for name in ("machine", "evidence/lrpe"):
        for path in source.glob(f"{name}.*"):
            shutil.copy(path, copied / path.relative_to(source))
    (tmp_path / "config.yaml").write_text("{}")
    project = Project(load_config(tmp_path / "config.yaml"), tmp_path)
    evidence = evidence_of(project.plan("lrpe").benchmark, copied)
    rows = evidence.read()
    kept = {*evidence.identity, "environment", "seed", "commit", "measured_at", "key"}
    for row, reason in zip(rows, (UNCHECKED, "wrong"), strict=False):
        row.update(dict.fromkeys(row.keys() - kept, ""), status="failed_check", reason=reason)
    evidence.hold(rows)
    reviewed = review(project, MACHINE)
    assert not reviewed.damaged
    assert len(reviewed.faults["out of memory"]["lrpe"]) == 1
    assert len(reviewed.faults["red gate"]["lrpe"]) == 1
    shown = Evidence.reviewed(reviewed).rows("lrpe")
    shown = shown[shown["status"] != "ok"]
    states = {"unchecked": "not checked", "failed_check": "withheld"}
    assert dict(zip(shown["state"], shown["words"], strict=True)) == states
    assert not shown["holds"].any()
