"""The pipeline as a user runs it: Snakemake on a checkout, with a small benchmark."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from lmperf.cli import main
from lmperf.config import load_config
from lmperf.evidence.plan import Project
from lmperf.reporting import written

pytestmark = [pytest.mark.process, pytest.mark.snakemake]

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
    copy_of(ROOT, root)
    return root


def copy_of(checkout, root):
    """What a clone has of the pipeline, without any evidence."""
    shutil.copy(checkout / "Snakefile", root)
    for folder in ("config", "profiles", "rules", "templates", "src"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(checkout / folder, root / folder, ignore=ignored)


def snakemake(root, *arguments, config=ONE):
    if (root / "config/config.yaml").read_text() != config:
        (root / "config/config.yaml").write_text(config)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def lmperf(root, *arguments):
    """A command in this process, whose code is that of the checkout."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(root), redirect_stdout(out), redirect_stderr(error):
        code = main([*arguments])
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=error.getvalue())


def run(root, *arguments, config=ONE):
    done = snakemake(root, *(arguments or ("report/report.md",)), config=config)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def ready(root, config=ONE):
    """Have the report of a configuration, whatever an earlier test has left."""
    (root / "config/config.yaml").write_text(config)
    project = Project(load_config(root / "config/config.yaml"), root)
    due = any(plan.is_due for plan in project.plans.values())
    if due or not all(written.is_current(project, machine) for machine in ("here", None)):
        run(root, config=config)


def measured(output):
    return [int(total) for total in re.findall(r"\[mixed_precision\] (\d+) groups", output)]


def tree(root):
    """Every file of a checkout with its content and time, but what Snakemake keeps for itself."""
    files = (path for path in root.rglob("*") if path.relative_to(root).parts[0] != ".snakemake")
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in files}


def dry_run(root, config):
    return run(root, "--dry-run", "report/report.md", config=config)


def rules_in(listed):
    """The rules that a dry run would run."""
    table = listed.partition("Job stats:")[2].partition("total")[0]
    return re.findall(r"^([a-z_]+) +\d+$", table, re.MULTILINE)


def rows(root):
    return (root / EVIDENCE).read_text().splitlines()[1:]


def test_a_report_and_then_nothing_to_do(checkout):
    assert measured(run(checkout)) == [1]
    assert "10.0001" in (checkout / "report/here/report.md").read_text()
    assert (checkout / "report/report.md").exists()
    assert "Nothing to be done" in run(checkout)


def test_a_dry_run_lists_what_is_due_and_writes_nothing(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    (tmp_path / "config/config.yaml").write_text(ONE)
    before = tree(tmp_path)
    listed = dry_run(tmp_path, ONE)
    assert tree(tmp_path) == before
    assert rules_in(listed) == ["measure", "write_up", "overview"]
    assert "mixed_precision: 1 of 1 cases to measure (1 missing)" in listed


def test_what_is_asked_for_on_the_command_line_is_done_and_what_is_due_as_well(checkout):
    ready(checkout)
    forced = run(checkout, "--dry-run", "-R", "mixed_precision")
    assert rules_in(forced) == ["measure", "mixed_precision", "write_up", "overview", "all"]
    assert "mixed_precision: all of it, again" in forced
    assert rules_in(run(checkout, "--dry-run", "-R", "overview")) == ["overview", "all"]
    assert rules_in(run(checkout, "--dry-run", "-R", "overview", config=TWO))[0] == "measure"
    assert rules_in(run(checkout, "--dry-run", "-F"))[:2] == ["measure", "write_up"]
    grid = TWO.partition("grid: ")[2]
    listed = run(checkout, "--dry-run", "mixed_precision", "--config", f"grid={grid}")
    assert "1 of 2 cases to measure (1 missing)" in listed
    before = rows(checkout)
    assert measured(run(checkout, "mixed_precision", "-R", "measure")) == [1]
    assert rows(checkout) != before


def test_the_tests_of_a_kernel_come_before_its_timings(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    config = "preset: cpu\nmachine: here\nbenchmarks: [flash_attention]\n"
    drawn = run(tmp_path, "report/report.md", "--rulegraph", "dot", config=config)
    node = {name: number for number, name in re.findall(r'(\d+)\[label = "(\w+)"', drawn)}
    assert f"{node['check']} -> {node['measure']}" in drawn, drawn


def test_what_is_due_does_not_hang_on_snakemakes_memory(checkout):
    ready(checkout)
    shutil.rmtree(checkout / ".snakemake")
    assert rules_in(dry_run(checkout, ONE)) == []
    assert rules_in(dry_run(checkout, TWO)) == ["measure", "write_up", "overview"]
    shutil.rmtree(checkout / ".lmperf")
    assert rules_in(dry_run(checkout, ONE)) == ["write_up", "overview"]


def test_a_rendering_that_fails_leaves_what_was_there_and_is_tried_again(checkout):
    ready(checkout)
    report = checkout / "report/report.md"
    before = report.read_bytes()
    template = checkout / "templates/report.md.j2"
    words = template.read_text()
    template.write_text(words + "{{ nothing_of_this_name }}")
    try:
        failed = snakemake(checkout, "report/report.md")
        assert failed.returncode == 1 and "nothing_of_this_name" in failed.stderr
        assert report.read_bytes() == before
        assert (checkout / "report/here/report.md").exists()
        assert rules_in(dry_run(checkout, ONE)) == ["write_up", "overview"]
    finally:
        template.write_text(words)
    assert rules_in(dry_run(checkout, ONE)) == []


def test_a_page_that_was_edited_is_written_again(checkout):
    ready(checkout)
    page = checkout / "report/here/report.md"
    words = page.read_text()
    page.write_text(words + "A line of a reader's own.\n")
    assert lmperf(checkout, "summary", "here", "--current").returncode == 1
    run(checkout)
    assert page.read_text() == words
    assert lmperf(checkout, "summary", "here", "--current").returncode == 0


def test_the_last_lines_name_the_file_and_what_is_wrong(checkout):
    ready(checkout)
    (checkout / "report/report.md").unlink()
    named = "report/report.md: the write-up of here"
    assert run(checkout).splitlines().count(named) == 1
    assert lmperf(checkout, "summary").stdout.splitlines() == [named]
    (checkout / "config/config.yaml").write_text(TWO)
    wrong = "  missing: 1 (mixed_precision 1)"
    assert lmperf(checkout, "summary").stdout.splitlines() == [named, wrong]


def test_a_plan_lists_every_case_that_would_run_with_why(checkout):
    ready(checkout)
    (checkout / "config/config.yaml").write_text(TWO)
    said = lmperf(checkout, "list", "--due").stdout.splitlines()
    assert said[1] == "mixed_precision: 1 of 2 cases to measure (1 missing)"
    assert len(said) == 3 and said[2].endswith("eager: missing")


def test_snakemakes_own_report_has_the_figures_and_pages(checkout, tmp_path):
    ready(checkout)
    machine = checkout / "report/here"
    (machine / "figures").mkdir(exist_ok=True)
    for name in ("memory-light", "memory-dark"):
        (machine / f"figures/{name}.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (machine / "memory.md").write_text("# Memory")
    short = "\n## In short\n\n- A step takes 3.1 ms. [Memory](memory.md)\n\n## Memory\n"
    (machine / "report.md").write_text((machine / "report.md").read_text() + short)
    config = load_config(checkout / "config/config.yaml")
    written.record(Project(config, checkout), "here")
    archive = tmp_path / "report.zip"
    try:
        run(checkout, "--report", str(archive))
    finally:
        shutil.rmtree(machine / "figures")
        (machine / "memory.md").unlink()
    with zipfile.ZipFile(archive) as content:
        names = sorted(Path(name).name for name in content.namelist())
        page = next(name for name in content.namelist() if name.endswith("report.html"))
        html = content.read(page).decode()
    assert {"memory-light.svg", "memory.md", "report.html", "report.md"} <= set(names)
    assert not [name for name in names if "dark" in name]
    for category in ("Figures", "Pages", "Write-up"):
        assert f'"{category}"' in html
    assert "A step takes 3.1 ms." in html


def test_snakemakes_linter_misses_nothing_but_an_environment_of_its_own(checkout):
    """Those of envs/ are made before Snakemake starts, which is one of their packages."""
    done = snakemake(checkout, "--lint")
    found = set(re.findall(r"^    \* (.*):$", done.stderr, re.MULTILINE))
    assert found == {"Specify a conda environment or container for each rule."}


def test_a_new_value_on_an_axis_measures_the_new_cell_alone(checkout):
    ready(checkout)
    before = rows(checkout)
    assert measured(run(checkout, config=TWO)) == [1]
    after = rows(checkout)
    assert len(after) == 2 and set(before) < set(after)
    assert rules_in(dry_run(checkout, TWO)) == []


def test_a_changed_module_is_measured_again_and_a_comment_is_not(checkout):
    ready(checkout, config=TWO)
    module = checkout / "src/lmperf/instruments/dtypes.py"
    source = module.read_text()
    module.write_text(source.replace("import torch\n", "import torch  # why\n", 1))
    assert "measure" not in rules_in(dry_run(checkout, TWO))
    module.write_text(source + "\nCHANGED = True\n")
    assert measured(run(checkout, config=TWO)) == [2]
    module.write_text(source)


def test_evidence_that_was_edited_is_named_set_aside_and_measured_again(checkout):
    ready(checkout)
    path = checkout / EVIDENCE
    path.write_text(path.read_text().replace("10.0", "11.0"))
    verdict = snakemake(checkout, "verify")
    assert verdict.returncode != 0
    assert f"{EVIDENCE} is not what was measured" in verdict.stderr
    assert "edited or cut" in run(checkout)
    assert path.with_suffix(".csv.damaged").exists()
    assert rules_in(dry_run(checkout, ONE)) == []


def test_verify_passes_and_names_what_is_missing(checkout):
    ready(checkout)
    assert "all is measured and right" in run(checkout, "verify")
    more = ONE.replace('"float32 + float32"', '"float32 + float32", "bfloat16 + bfloat16"')
    verdict = snakemake(checkout, "verify", config=more.replace("[float32]", "[float32, bfloat16]"))
    assert verdict.returncode != 0
    assert "missing: experiment=accumulation, subject=bfloat16 + bfloat16" in verdict.stderr


def test_one_machine_is_verified_whatever_the_others_have(checkout):
    ready(checkout)
    other = checkout / "report/elsewhere"
    shutil.copytree(checkout / "report/here", other)
    table = other / "evidence/mixed_precision.csv"
    table.write_text(table.read_text().replace("10.0", "11.0"))
    try:
        assert lmperf(checkout, "verify").returncode == 0
        assert lmperf(checkout, "verify", "here").returncode == 0
        verdict = lmperf(checkout, "verify", "--all")
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
    ready(checkout)
    report = tmp_path / "report/elsewhere"
    shutil.copytree(checkout / "report/here", report)
    (report / "report.md").unlink()
    for folder in ("config", "templates"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "config/config.yaml").write_text(ONE)
    code = """
import sys
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *where: (
    None if name in ("torch", "triton") else find_spec(name, *where)
)
from lmperf.cli import main
sys.exit(main(["report", "elsewhere"]))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "10.0001" in (report / "report.md").read_text()
