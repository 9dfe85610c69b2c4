"""The pipeline as a user runs it: Snakemake in a checkout, with one small benchmark."""

import contextlib
import fcntl
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
import workflow
from checkout import Checkout, whole
from filelock import FileLock
from repository import git

from lmperf.cli import main
from lmperf.config.read import load_config
from lmperf.evidence import closure, machine
from lmperf.evidence.project import Project
from lmperf.reporting import site, written
from lmperf.reporting.files import LIST

pytestmark = [pytest.mark.process, pytest.mark.snakemake]

ROOT = Path(__file__).parents[1]
GRID = "preset: cpu\nmachine: here\nbenchmarks: [mixed_precision]\ngrid: {mixed_precision: "
CELL = '{experiment: [accumulation], subject: ["float32 + float32"], dtype: [float32], '
ONE = GRID + CELL + "implementation: [eager]}}"
TWO = ONE.replace('"float32 + float32"', '"float32 + float32", "float16 + float16"').replace(
    "dtype: [float32]", "dtype: [float32, float16]"
)
EVERYTHING = "preset: cpu\nmachine: here\n"
EVIDENCE = "report/here/evidence/mixed_precision.csv"
NOTE = """
{% call note() %}
{% set sums = rows("mixed_precision").where(experiment="accumulation", dtype="float32") %}
{% if sums.one["value"] > 10 %}
The sum is {{ sums.one["value"] | fixed(4) }}.
{% endif %}
{% endcall %}
"""


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, worker_id):
    """A checkout with an up-to-date report, made once for all test processes; tests change copies.

    `said.txt` in its folder is the output of its run.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "prepared"
    with FileLock(f"{folder}.lock"):
        if not (folder / "said.txt").exists():
            said = run(Checkout(folder / "checkout", ONE).root)
            (folder / "said.txt").write_text(said)
    return folder


@pytest.fixture
def checkout(prepared, tmp_path):
    """A copy of the prepared checkout, with the times of its files and Snakemake's records."""
    return shutil.copytree(prepared / "checkout", tmp_path / "checkout")


def snakemake(root, *arguments, config=ONE):
    if (root / "config/config.yaml").read_text() != config:
        (root / "config/config.yaml").write_text(config)
    return workflow.snakemake(root, environment_of(root), "--cores", "1", *arguments)


def environment_of(root):
    return {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}


def lmperf(root, *arguments):
    """Run a command of lmperf in this process."""
    forget_caches()
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(root), redirect_stdout(out), redirect_stderr(error):
        code = main([*arguments])
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=error.getvalue())


def forget_caches():
    """Look at the machine and the code as a new process does: other tests pretend others."""
    for function in (*vars(machine).values(), closure._running):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def run(root, *arguments, config=ONE):
    done = snakemake(root, *(arguments or ("report/report.md",)), config=config)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def measured(output):
    return [int(total) for total in re.findall(r"\[mixed_precision\] (\d+) \w+ to measure", output)]


def tree(root):
    """The content and time of every file of a checkout, except those in .snakemake/."""
    files = (path for path in root.rglob("*") if path.relative_to(root).parts[0] != ".snakemake")
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in files}


def rules_in(listed):
    """The rules that a run lists."""
    table = listed.partition("Job stats:")[2].partition("total")[0]
    return re.findall(r"^([a-z_]+) +\d+$", table, re.MULTILINE)


def reasons_in(listed):
    """Rule -> the reason that a dry run gives for its job."""
    return dict(re.findall(r"^Job \d+: (\w+): .*\nReason: (.*)$", listed, re.MULTILINE))


def rename(folder):
    """Make the evidence in a copied folder that of another machine."""
    facts = json.loads((folder / "machine.json").read_text())
    (folder / "machine.json").write_text(json.dumps(facts | {"machine": folder.name}))


def keys(root):
    return {row["key"] + row["measured_at"] for row in whole(root / EVIDENCE)}


def test_first_run_measures_and_the_second_has_nothing_to_do(prepared, checkout):
    said = (prepared / "said.txt").read_text()
    assert measured(said) == [1]
    assert "10.0001" in (checkout / "report/here/mixed_precision.md").read_text()
    assert said.splitlines().count("report/report.md: the write-up of here") == 1
    shutil.rmtree(checkout / ".snakemake")  # what is due does not depend on Snakemake's records
    assert "Nothing to be done" in run(checkout)


def test_dry_run_gives_true_reasons_and_writes_nothing(checkout):
    """A job that is due has a new input; the evidence of other machines is not listed."""
    shutil.copytree(checkout / "report/here", checkout / "report/elsewhere")
    for folder in [*checkout.rglob("__pycache__")]:
        shutil.rmtree(folder)
    (checkout / "config/config.yaml").write_text(TWO)
    before = tree(checkout)
    with open(checkout / ".snakemake/lmperf.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = snakemake(checkout, "report/report.md", config=TWO)
        assert done.returncode == 2 and "another run in this checkout is under way" in done.stderr
        listed = run(checkout, "--dry-run", "report/report.md", config=TWO)
    assert tree(checkout) == before
    assert rules_in(listed) == ["mixed_precision", "write_up", "overview"]
    assert "mixed_precision: 1 of 2 cases to measure (1 missing)" in listed
    reasons = reasons_in(listed)
    assert reasons["mixed_precision"] == "Updated input files: .snakemake/due"
    assert f"updated by another job: {EVIDENCE}" in reasons["write_up"]
    assert "updated by another job: report/here/report.md" in reasons["overview"]
    assert "elsewhere" not in listed


def test_forced_benchmark_is_measured_whole(checkout):
    listed = run(checkout, "--dry-run", "mixed_precision", "-f", "--config", "retry_failed=true")
    assert "mixed_precision: all of it again" in listed
    assert reasons_in(listed)["mixed_precision"] == "Forced execution"
    before = keys(checkout)
    assert measured(run(checkout, "mixed_precision", "-R", EVIDENCE, config=TWO)) == [2]
    assert len(keys(checkout)) == 2 and not before & keys(checkout)


def test_rules_use_only_what_a_project_has():
    """No other test runs every line of the rules."""
    text = "".join(path.read_text() for path in (ROOT / "Snakefile", *ROOT.glob("rules/*.smk")))
    used = set(re.findall(r"\bproject\.(\w+)", text))
    known = {*dir(Project), *vars(Project(load_config(ROOT / "config/config.yaml"), ROOT))}
    assert used and used <= known, used - known


def test_order_is_kernel_tests_timings_second_times(tmp_path):
    root = Checkout(tmp_path / "checkout", EVERYTHING).root
    drawn = run(root, "report/report.md", "--rulegraph", "dot", config=EVERYTHING)
    node = {name: number for number, name in re.findall(r'(\d+)\[label = "(\w+)"', drawn)}
    assert f"{node['flash_attention_check']} -> {node['flash_attention']}" in drawn, drawn
    for stem in {*node} - {"repeatability", "write_up", "overview", "all"}:
        assert f"{node[stem]} -> {node['repeatability']}" in drawn, stem
    assert f"{node['repeatability']} -> {node['write_up']}" in drawn


def test_what_is_due_runs_also_after_what_it_waits_for(tmp_path):
    """Snakemake skips a job whose only inputs to be made are ancient ones, whatever is due."""
    root = Checkout(tmp_path / "checkout", EVERYTHING).root
    waiting = ["flash_attention_check", "flash_attention", "repeatability"]
    for stem in waiting:
        evidence = root / f"report/here/evidence/{stem}.csv"
        evidence.parent.mkdir(parents=True, exist_ok=True)
        evidence.touch()
    listed = run(root, "report/report.md", "--dry-run", config=EVERYTHING)
    assert {*waiting} <= {*rules_in(listed)}


def test_run_follows_the_key_report_and_stops_at_a_foreign_page(tmp_path):
    root = Checkout(tmp_path / "checkout", ONE).root
    page = root / "report/report.md"
    page.parent.mkdir()
    page.write_text("mine")
    done = snakemake(root, "mixed_precision")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("lmperf: report/report.md is there already")
    listed = run(root, "--dry-run", config=f"{ONE}\nreport: lmperf-report\n")
    assert {*rules_in(listed)} == {"mixed_precision", "write_up", "overview", "all"}
    assert "lmperf-report/here/report.md" in reasons_in(listed)["overview"]
    assert page.read_text() == "mine"


def test_bad_configuration_is_one_line(tmp_path):
    root = Checkout(tmp_path / "checkout", ONE).root
    done = snakemake(root, "report/report.md", config="preset: fast")
    assert done.returncode == 2
    assert "config/config.yaml: preset is 'fast'" in done.stderr


def test_broken_template_of_the_user_stops_a_run_at_its_start(tmp_path):
    git(tmp_path, "init", "-q")
    assert lmperf(tmp_path, "init").returncode == 0
    (tmp_path / "templates").mkdir(exist_ok=True)
    text = '{% extends "lmperf/attention.md.j2" %}\nMine.\n'
    (tmp_path / "templates/attention.md.j2").write_text(text)
    done = snakemake(tmp_path, "report/report.md")
    assert done.returncode == 2 and "attention.md.j2:2: text outside of blocks" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / EVIDENCE).exists()


def test_damage_and_failed_rendering_are_mended_by_the_next_run(checkout):
    """A row, a page and a template are edited, and the configuration has a new cell."""
    evidence, page = checkout / EVIDENCE, checkout / "report/here/report.md"
    row, before = evidence.read_text().splitlines()[1], keys(checkout)
    evidence.write_text(evidence.read_text().replace("10.0", "11.0"))
    verdict = snakemake(checkout, "verify")
    assert verdict.returncode != 0 and "line 2 is damaged" in verdict.stderr

    old = (checkout / "report/report.md").read_bytes()
    template = checkout / "templates/report.md.j2"
    words = template.read_text()
    template.write_text(words + "{{ nothing_of_this_name }}")
    failed = snakemake(checkout, "report/report.md")
    assert failed.returncode == 1 and "nothing_of_this_name" in failed.stderr
    assert "its view must be written" in failed.stdout + failed.stderr
    assert measured(failed.stdout + failed.stderr) == []
    assert row in evidence.read_text().splitlines(), "it comes back from the store"
    assert (checkout / "report/report.md").read_bytes() == old and page.exists()

    template.write_text(words + NOTE)
    page.write_text(page.read_text() + "A line of a reader's own.\n")
    said = run(checkout, config=TWO)
    assert rules_in(said) == ["mixed_precision", "write_up", "overview"]
    assert measured(said) == [1], "only the new cell"
    assert len(keys(checkout)) == 2 and before < keys(checkout)
    assert "A line of a reader's own." not in page.read_text()
    for name in ("report.md", "here/report.md"):
        text = (checkout / "report" / name).read_text()
        assert "> **Author's note.** The sum is 10.0001." in text


def test_snakemake_report_has_figures_and_pages(checkout, tmp_path):
    machine = checkout / "report/here"
    (machine / "figures").mkdir(exist_ok=True)
    for name in ("memory-light", "memory-dark"):
        (machine / f"figures/{name}.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (machine / "memory.md").write_text("# Memory")
    with (machine / LIST).open("a") as listed:
        listed.write("memory.md\nfigures/memory-light.svg\nfigures/memory-dark.svg\n")
    config = load_config(checkout / "config/config.yaml")
    written.record(Project(config, checkout), "here")
    archive = tmp_path / "report.zip"
    run(checkout, "--report", str(archive))
    with zipfile.ZipFile(archive) as content:
        names = sorted(Path(name).name for name in content.namelist())
        page = next(name for name in content.namelist() if name.endswith("report.html"))
        html = content.read(page).decode()
    assert {"memory-light.svg", "memory.md", "report.html", "report.md"} <= set(names)
    assert not [name for name in names if "dark" in name]
    for category in ("Figures", "Pages", "Write-up"):
        assert f'"{category}"' in html


def test_site_has_every_machine_and_verify_names_what_is_wrong(checkout, monkeypatch):
    # tests/reporting/test_site.py has the processes and the scripts, which take ten seconds.
    monkeypatch.setattr(site, "ProcessPoolExecutor", lambda **_: ThreadPoolExecutor(1))
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda: "")
    other = checkout / "report/elsewhere"
    shutil.copytree(checkout / "report/here", other)
    rename(other)
    assert lmperf(checkout, "site").returncode == 0
    assert (checkout / "site/elsewhere/mixed_precision.html").exists()
    table = other / "evidence/mixed_precision.csv"
    table.write_text(table.read_text().replace("10.0", "11.0"))
    right = lmperf(checkout, "verify")
    assert right.returncode == 0 and "all is measured and right" in right.stdout + right.stderr
    verdict = lmperf(checkout, "verify", "--all")
    assert verdict.returncode == 1 and "elsewhere" in verdict.stderr
    (checkout / "report/here/mixed_precision.md").write_text("edited")
    (checkout / "report/here/method.md").unlink()
    said = lmperf(checkout, "verify").stderr
    assert "mixed_precision.md: differs from what its evidence" in said
    assert "method.md: has not been rendered" in said
    unknown = lmperf(checkout, "verify", "nowhere")
    assert unknown.returncode == 2 and "no evidence of machine nowhere" in unknown.stderr

    (checkout / "config/config.yaml").write_text(TWO)
    verdict = lmperf(checkout, "verify")
    assert verdict.returncode == 1
    assert "missing: experiment=accumulation, subject=float16 + float16" in verdict.stderr
    said = lmperf(checkout, "list", "--due").stdout.splitlines()
    assert said[-2] == "mixed_precision: 1 of 2 cases to measure (1 missing)"
    assert said[-1].endswith("eager: missing")
    said = lmperf(checkout, "report", "here").stdout.splitlines()
    assert said[1:] == ["  missing: 1 (mixed_precision 1)"]


def test_rows_that_are_not_right_are_published_with_a_reason(checkout):
    git(checkout, "init", "-q")
    git(checkout, "add", "Snakefile")
    (checkout / "config/config.yaml").write_text(TWO)
    assert lmperf(checkout, "publish").returncode == 1
    done = lmperf(checkout, "publish", "--anyway", "a first part")
    assert done.returncode == 0 and "files are in Git's index" in done.stdout
    page = (checkout / "report/here/report.md").read_text()
    assert "missing: 1 (mixed_precision 1). Published all the same: a first part." in page
    files = git(checkout, "ls-files", "report")
    assert EVIDENCE in files and "store" not in files


def test_other_machine_is_rendered_without_torch(checkout):
    report = checkout / "report/elsewhere"
    (checkout / "report/here").rename(report)
    rename(report)
    (report / "report.md").unlink()
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
    known = dict(cwd=checkout, env=environment_of(checkout), capture_output=True, text=True)
    done = subprocess.run([sys.executable, "-c", code], **known)
    assert done.returncode == 0, done.stderr
    assert "10.0001" in (report / "mixed_precision.md").read_text()
