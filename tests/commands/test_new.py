"""The two files of a benchmark, to begin with."""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("src/lmperf/benchmarks", "templates/sections")


def test_outside_a_checkout_nothing_is_written(folder, lmperf):
    code, _, said = lmperf("new", "gelu")
    assert code == 2 and "src/lmperf/benchmarks: is not here; change into a checkout" in said


@pytest.mark.parametrize(
    "name", ["Gelu", "a-b", "../x", "attention", "", "x" * 65, "none", "workload"]
)
def test_a_name_that_can_be_none_is_refused(folder, lmperf, name):
    for path in FOLDERS:
        (folder / path).mkdir(parents=True)
    code, _, said = lmperf("new", name)
    assert code == 2 and "can be no new benchmark" in said


def test_the_files_are_named_and_none_is_overwritten(folder, lmperf):
    for path in FOLDERS:
        (folder / path).mkdir(parents=True)
    code, out, _ = lmperf("new", "layer_norm")
    assert code == 0
    benchmark, template = (folder / line for line in out.split())
    assert "class LayerNorm(Timed):" in benchmark.read_text()
    assert "how fast is layer norm?" in template.read_text()
    code, _, said = lmperf("new", "layer_norm")
    assert code == 2 and "is there already" in said


def test_a_rule_of_the_workflow_is_no_name_of_a_benchmark(folder, lmperf):
    shutil.copytree(ROOT / "rules", folder / "rules")
    shutil.copy(ROOT / "Snakefile", folder)
    for name in ("verify", "check", "measure", "overview_written", "all"):
        code, _, said = lmperf("new", name)
        assert code == 2 and "can be no new benchmark" in said, name
