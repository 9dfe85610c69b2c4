"""The pipeline as a user runs it: Snakemake on a checkout, with a small benchmark."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GRID = "preset: cpu\nmachine: here\nbenchmarks: [mixed_precision]\ngrid: {mixed_precision: "
CELL = '{experiment: [accumulation], subject: ["float32 + float32"], dtype: [float32], '
ONE = GRID + CELL + "implementation: [eager]}}"
TWO = ONE.replace('"float32 + float32"', '"float32 + float32", "float16 + float16"').replace(
    "dtype: [float32]", "dtype: [float32, float16]"
)
EVIDENCE = "report/here/evidence/mixed_precision.csv"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkout")
    shutil.copy(ROOT / "Snakefile", root)
    for folder in ("config", "profiles", "templates", "envs"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def snakemake(root, *arguments, config=ONE):
    (root / "config/config.yaml").write_text(config)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def lmperf(root, *arguments):
    command = [sys.executable, "-m", "lmperf.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def run(root, *arguments, config=ONE):
    done = snakemake(root, *(arguments or ("report/report.md",)), config=config)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def measured(output):
    return [int(total) for total in re.findall(r"\[mixed_precision\] (\d+) groups", output)]


def rows(root):
    return (root / EVIDENCE).read_text().splitlines()[1:]


def test_a_report_and_then_nothing_to_do(checkout):
    assert measured(run(checkout)) == [1]
    assert "10.0001" in (checkout / "report/here/report.md").read_text()
    assert (checkout / "report/report.md").exists()
    assert "Nothing to be done" in run(checkout)


def test_a_new_value_on_an_axis_measures_the_new_cell_alone(checkout):
    run(checkout)
    before = rows(checkout)
    assert measured(run(checkout, config=TWO)) == [1]
    after = rows(checkout)
    assert len(after) == 2 and set(before) < set(after)
    assert measured(run(checkout, config=TWO)) == []


def test_a_changed_module_is_measured_again_and_a_comment_is_not(checkout):
    run(checkout, config=TWO)
    module = checkout / "src/lmperf/instruments/dtypes.py"
    source = module.read_text()
    module.write_text(source.replace("import torch\n", "import torch  # why\n", 1))
    assert measured(run(checkout, config=TWO)) == []
    module.write_text(source + "\nCHANGED = True\n")
    assert measured(run(checkout, config=TWO)) == [2]
    module.write_text(source)


def test_evidence_that_was_edited_is_named_set_aside_and_measured_again(checkout):
    run(checkout)
    path = checkout / EVIDENCE
    path.write_text(path.read_text().replace("10.0", "11.0"))
    verdict = snakemake(checkout, "verify")
    assert verdict.returncode != 0
    assert f"{EVIDENCE} is not what was measured" in verdict.stderr
    assert "edited or cut" in run(checkout)
    assert path.with_suffix(".csv.damaged").exists()
    assert measured(run(checkout)) == []


def test_verify_passes_and_names_what_is_missing(checkout):
    run(checkout)
    assert "all is measured and right" in run(checkout, "verify")
    more = ONE.replace('"float32 + float32"', '"float32 + float32", "bfloat16 + bfloat16"')
    verdict = snakemake(checkout, "verify", config=more.replace("[float32]", "[float32, bfloat16]"))
    assert verdict.returncode != 0
    assert "missing: experiment=accumulation, subject=bfloat16 + bfloat16" in verdict.stderr


def test_one_machine_is_verified_whatever_the_others_have(checkout):
    run(checkout)
    other = checkout / "report/elsewhere"
    shutil.copytree(checkout / "report/here", other)
    table = other / "evidence/mixed_precision.csv"
    table.write_text(table.read_text().replace("10.0", "11.0"))
    try:
        assert lmperf(checkout, "verify", "here").returncode == 0
        verdict = lmperf(checkout, "verify")
        assert verdict.returncode == 1 and "elsewhere" in verdict.stderr
        unknown = lmperf(checkout, "verify", "nowhere")
        assert unknown.returncode == 2 and "no evidence of machine nowhere" in unknown.stderr
    finally:
        shutil.rmtree(other)


def test_a_bad_configuration_is_one_line_and_exit_code_2(checkout):
    done = snakemake(checkout, "report/report.md", config="preset: fast")
    assert done.returncode == 2
    assert "config/config.yaml: preset is 'fast'" in done.stderr


def test_evidence_of_another_machine_is_rendered_without_torch(tmp_path, checkout):
    run(checkout)
    report = tmp_path / "report/elsewhere"
    shutil.copytree(checkout / "report/here", report)
    (report / "report.md").unlink()
    for folder in ("config", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "config/config.yaml").write_text(ONE)
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None;"
        "from lmperf.cli import main; sys.exit(main(['report', 'elsewhere']))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "10.0001" in (report / "report.md").read_text()
