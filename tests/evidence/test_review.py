"""What is missing of a machine's evidence."""

from lmperf.config import load_config
from lmperf.evidence.facts import write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.repeatability import STEM
from lmperf.evidence.review import review


def test_machine_misses_only_rows_of_its_own_benchmarks(tmp_path):
    facts = {"machine": "box", "preset": "cpu", "environments": {}}
    write_facts(tmp_path / "report/box", facts)
    file = tmp_path / "config.yaml"
    found = {}
    for text in ("{}", "benchmarks: [lrpe]", "benchmarks_by_machine: {box: [lrpe]}"):
        file.write_text(text)
        project = Project(load_config(file), tmp_path)
        found[text] = review(project, "box").missing
    every, elsewhere, own = found.values()
    assert {"memory", "lrpe", STEM} <= {*every}
    assert elsewhere == every, "benchmarks names those of the machine at hand"
    assert {*own} == {"lrpe", "lrpe_check", STEM}
    assert own["lrpe"] == every["lrpe"]
