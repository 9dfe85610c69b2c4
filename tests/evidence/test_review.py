"""What is missing of a machine's evidence."""

from lmperf.config import load_config
from lmperf.evidence.facts import write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import STEM
from lmperf.evidence.review import review
from lmperf.reporting.render import machine_evidence


def test_machine_misses_only_rows_of_its_own_benchmarks(tmp_path):
    facts = {"machine": "box", "preset": "cpu", "environments": {}}
    write_facts(tmp_path / "report/box", facts)
    file = tmp_path / "config.yaml"
    found = {}
    for text in ("{}", "benchmarks: [lrpe]", "benchmarks_by_machine: {box: [lrpe]}"):
        file.write_text(text)
        project = Project(load_config(file), tmp_path)
        found[text] = machine_evidence(project, review(project, "box"))
    every, elsewhere, own = found.values()
    assert {"memory", "lrpe", STEM} <= {*every.missing} and not every.left_out
    assert elsewhere.missing == every.missing, "benchmarks names those of the machine at hand"
    assert {*own.missing} == {"lrpe", "lrpe_check", STEM}
    assert own.missing["lrpe"] == every.missing["lrpe"]
    assert own.left_out["memory"] == "the configuration leaves it out"
    assert {*own.left_out, *own.missing} >= {*every.missing}
