"""The pipeline as a user runs it: Snakemake in a checkout, with one small benchmark."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest
from configurations import attention

from lmperf.cli import main
from lmperf.config import load_config
from lmperf.evidence import closure, machine
from lmperf.evidence.project import Project
from lmperf.reporting import written

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
{% set sum = rows("mixed_precision").where(experiment="accumulation").one["value"] %}
{{ holds(sum > 10) }}The sum is {{ sum | fixed(4) }}.
{% endcall %}
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A checkout with an up-to-date report, and the output of its run. Tests change copies."""
    root = copy_of(ROOT, tmp_path_factory.mktemp("prepared") / "checkout")
    return SimpleNamespace(root=root, said=run(root))


@pytest.fixture
def checkout(prepared, tmp_path):
    """A copy of the prepared checkout, with the times of its files and Snakemake's records."""
    return shutil.copytree(prepared.root, tmp_path / "checkout")


@pytest.fixture
def unmeasured(tmp_path):
    """A checkout without evidence."""
    root = copy_of(ROOT, tmp_path / "unmeasured")
    (root / "config/config.yaml").write_text(ONE)
    return root


def copy_of(checkout, root):
    """Copy what a clone has of the pipeline, without any evidence. Returns `root`."""
    root.mkdir()
    shutil.copy(checkout / "Snakefile", root)
    for folder in ("config", "profiles", "rules", "templates", "src"):
        # Bytecode saves a second; another process may be about to rename a *.pyc.NUMBER.
        ignored = shutil.ignore_patterns("*.pyc.*", "*.egg-info")
        shutil.copytree(checkout / folder, root / folder, ignore=ignored)
    return root


def snakemake(root, *arguments, config=ONE):
    if (root / "config/config.yaml").read_text() != config:
        (root / "config/config.yaml").write_text(config)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    return subprocess.run(
        command, cwd=root, env=environment_of(root), capture_output=True, text=True
    )


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
    return [int(total) for total in re.findall(r"\[mixed_precision\] (\d+) groups?", output)]


def tree(root):
    """The content and time of every file of a checkout, except those in .snakemake/."""
    files = (path for path in root.rglob("*") if path.relative_to(root).parts[0] != ".snakemake")
    return {path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in files}


def dry_run(root, config):
    return run(root, "--dry-run", "report/report.md", config=config)


def rules_in(listed):
    """The rules that a dry run lists."""
    table = listed.partition("Job stats:")[2].partition("total")[0]
    return re.findall(r"^([a-z_]+) +\d+$", table, re.MULTILINE)


def reasons_in(listed):
    """Rule -> the reason that a dry run gives for its job."""
    plain = re.findall(r"^rule (\w+):\n(?:    .*\n)*?    reason: (.*)$", listed, re.MULTILINE)
    with_message = re.findall(r"^Job \d+: (\w+): .*\nReason: (.*)$", listed, re.MULTILINE)
    return dict([*plain, *with_message])


def rows(root):
    return (root / EVIDENCE).read_text().splitlines()[1:]


def test_second_run_has_nothing_to_do(prepared, checkout):
    assert measured(prepared.said) == [1]
    assert "10.0001" in (checkout / "report/here/report.md").read_text()
    assert prepared.said.splitlines().count("report/report.md: the write-up of here") == 1
    assert "Nothing to be done" in run(checkout)


def test_dry_run_gives_true_reasons_and_writes_nothing(checkout):
    """A job that is due has a new input."""
    for folder in [*checkout.rglob("__pycache__")]:
        shutil.rmtree(folder)
    (checkout / "config/config.yaml").write_text(TWO)
    before = tree(checkout)
    listed = dry_run(checkout, TWO)
    assert tree(checkout) == before
    assert rules_in(listed) == ["mixed_precision", "write_up", "overview"]
    assert "mixed_precision: 1 of 2 cases to measure (1 missing)" in listed
    reasons = reasons_in(listed)
    assert re.fullmatch(r"Updated input files: \S+/mixed_precision", reasons["mixed_precision"])
    updated = "Input files updated by another job: "
    assert reasons["write_up"].startswith(f"{updated}{EVIDENCE}")
    assert reasons["overview"].startswith(f"{updated}report/here/report.md")


@pytest.mark.parametrize(
    "options",
    [("-R", "mixed_precision"), ("-R", EVIDENCE), ("-F",), ("mixed_precision", "-f")],
    ids=" ".join,
)
def test_forced_benchmark_is_measured_whole(checkout, options):
    listed = run(checkout, "--dry-run", *options)
    assert "mixed_precision: all of it again" in listed
    assert reasons_in(listed)["mixed_precision"] == "Forced execution"
    if options == ("-R", "mixed_precision"):
        assert rules_in(listed) == ["mixed_precision", "write_up", "overview", "all"]
        assert [*reasons_in(listed).values()].count("Forced execution") == 1


def test_forced_run_also_runs_what_is_due(checkout):
    also_due = run(checkout, "--dry-run", "-R", "overview", config=TWO)
    assert rules_in(also_due)[0] == "mixed_precision"
    before = rows(checkout)
    assert measured(run(checkout, "mixed_precision", "-R", "mixed_precision", config=TWO)) == [2]
    assert len(rows(checkout)) == 2 and not set(before) & set(rows(checkout))


def test_rules_use_only_what_a_project_has():
    """No other test runs every line of the rules: some wait for a person or for an idle machine."""
    text = "".join(path.read_text() for path in (ROOT / "Snakefile", *ROOT.glob("rules/*.smk")))
    used = set(re.findall(r"\bproject\.(\w+)", text))
    known = {*dir(Project), *vars(Project(load_config(ROOT / "config/config.yaml"), ROOT))}
    assert used and used <= known, used - known


def test_few_attributes_of_the_workflow_are_used():
    """`basedir` is documented for Snakefiles. Of `dag_settings` only the class is; the tests of
    forced benchmarks fail if it changes, `test_side_by_side.py` if `global_resources` does, and the
    tests of the workflow as a module if the others do. Tried with Snakemake 9.27.1."""
    text = "".join(path.read_text() for path in (ROOT / "Snakefile", *ROOT.glob("rules/*.smk")))
    code = re.sub(r"`[^`\n]*`", "", text)
    used = {"current_basedir", "modifier", "dag_settings", "rst"}
    used |= {"global_resources", "register_resource"}
    assert set(re.findall(r"\bworkflow\.(\w+)", code)) == used
    assert not re.findall(r"^(?:from|import) snakemake", code, re.MULTILINE)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs mount")
def test_read_only_folder_is_one_line_and_exit_code_2(unmeasured):
    script = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "-", str(unmeasured)]
    command += [sys.executable, "-m", "snakemake", "--cores", "1", "--dry-run"]
    done = subprocess.run(command, env=environment_of(unmeasured), capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("mount is not permitted here")
    (line,) = (line for line in done.stderr.splitlines() if "lmperf" in line)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is read-only" in line and "make it writable" in line


def test_order_is_kernel_tests_timings_second_times(unmeasured):
    drawn = run(unmeasured, "report/report.md", "--rulegraph", "dot", config=EVERYTHING)
    node = {name: number for number, name in re.findall(r'(\d+)\[label = "(\w+)"', drawn)}
    assert f"{node['flash_attention_check']} -> {node['flash_attention']}" in drawn, drawn
    for stem in {*node} - {"repeatability", "write_up", "overview", "all"}:
        assert f"{node[stem]} -> {node['repeatability']}" in drawn, stem
    assert f"{node['repeatability']} -> {node['write_up']}" in drawn


def test_each_job_is_told_the_other_benchmarks_of_the_run(unmeasured):
    config = "preset: cpu\nmachine: here\nbenchmarks: [flash_attention, warmup]\n"

    def also(*arguments, config=config):
        """Stem -> the other benchmarks that its job is told about, and what the run says."""
        shown = run(unmeasured, "--dry-run", "--printshellcmds", *arguments, config=config)
        found = re.findall(r"measure (\w+).* --log \S+(?: --also (\S+))?", shown)
        return {stem: set(filter(None, others.split(","))) for stem, others in found}, shown

    every, shown = also("report/report.md", config=EVERYTHING)
    assert "repeatability: 24 of 24 rows to measure a second time (24 missing)" in shown
    whole = {*every, "repeatability"}
    assert len(every) > 10 and all(every[stem] == whole - {stem} for stem in every)
    both = {"flash_attention", "flash_attention_check"}
    assert also("flash_attention")[0] == {stem: both - {stem} for stem in both}
    # What a job of a forced benchmark has left cannot be seen from the evidence.
    forced, _ = also("report/report.md", "-R", "warmup")
    assert forced == {"warmup": both, "flash_attention": set(), "flash_attention_check": set()}


def test_quick_run_is_in_order_and_nothing_is_measured_twice(unmeasured):
    config = "preset: cpu\nmachine: here\nbenchmarks: [memory, mixed_precision]\n"
    subject = '{experiment: [accumulation], subject: ["float32 + float32"]}'
    memory = "{size: [tiny], batch: [1], dtype: [float32]}"
    grid = f"grid={{memory: {memory}, mixed_precision: {subject}}}"
    quick = ("memory", "mixed_precision", "--config", "preset=quick", grid)
    said = run(unmeasured, *quick, config=config)
    jobs = re.findall(r"(\w+): (\d+) of (\d+) cases to measure", said)
    assert jobs == [("mixed_precision", "1", "1"), ("memory", "1", "1")], said
    rest = lmperf(unmeasured, "list", "--config", grid).stdout
    assert "mixed_precision: 0 of 1 cases to measure" in rest
    assert "memory: 2 of 3 cases to measure (2 missing)" in rest
    assert rules_in(run(unmeasured, "--dry-run", *quick, config=config)) == []


def test_what_is_due_does_not_depend_on_snakemake_records(checkout):
    shutil.rmtree(checkout / ".snakemake")
    assert rules_in(dry_run(checkout, ONE)) == []
    shutil.rmtree(checkout / ".lmperf")
    assert rules_in(dry_run(checkout, ONE)) == ["write_up", "overview"]


def test_missing_output_below_one_from_the_future_is_due(checkout):
    later = time.time() + 3600
    os.utime(checkout / "report/report.md", (later, later))
    (checkout / "report/here/report.md").unlink()
    assert rules_in(run(checkout)) == ["write_up", "overview"]
    assert rules_in(dry_run(checkout, ONE)) == []


def test_failed_rendering_keeps_the_old_report_and_is_retried(checkout):
    report = checkout / "report/report.md"
    before = report.read_bytes()
    with open(checkout / "templates/report.md.j2", "a") as template:
        template.write("{{ nothing_of_this_name }}")
    failed = snakemake(checkout, "report/report.md")
    assert failed.returncode == 1 and "nothing_of_this_name" in failed.stderr
    assert report.read_bytes() == before
    assert (checkout / "report/here/report.md").exists()
    assert rules_in(dry_run(checkout, ONE)) == ["write_up", "overview"]


def test_edited_page_and_template_render_again_and_measure_nothing(checkout):
    page = checkout / "report/here/report.md"
    page.write_text(page.read_text() + "A line of a reader's own.\n")
    assert lmperf(checkout, "summary", "here", "--current").returncode == 1
    with open(checkout / "templates/report.md.j2", "a") as template:
        template.write(NOTE)
    said = run(checkout)
    assert rules_in(said) == ["write_up", "overview"] and measured(said) == []
    assert "A line of a reader's own." not in page.read_text()
    for name in ("report.md", "here/report.md"):
        text = (checkout / "report" / name).read_text()
        assert "> **Author's note.** The sum is 10.0001." in text
    assert lmperf(checkout, "summary", "here", "--current").returncode == 0
    assert "Nothing to be done" in dry_run(checkout, ONE)


def test_list_and_summary_name_what_is_missing(checkout):
    (checkout / "config/config.yaml").write_text(TWO)
    said = lmperf(checkout, "list", "--due").stdout.splitlines()
    said = [line for line in said if not line.startswith("measured with lmperf ")]
    assert said[1] == "mixed_precision: 1 of 2 cases to measure (1 missing)"
    assert len(said) == 3 and said[2].endswith("eager: missing")
    summary = lmperf(checkout, "summary").stdout.splitlines()
    named = "report/report.md: the write-up of here"
    assert summary == [named, "  missing: 1 (mixed_precision 1)"]


def test_snakemake_report_has_figures_and_pages(checkout, tmp_path):
    machine = checkout / "report/here"
    (machine / "figures").mkdir(exist_ok=True)
    for name in ("memory-light", "memory-dark"):
        (machine / f"figures/{name}.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (machine / "memory.md").write_text("# Memory")
    short = "\n## Memory\n\n**A step takes 3.1 ms.** [Memory](memory.md)\n"
    (machine / "report.md").write_text((machine / "report.md").read_text() + short)
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
    description = html.partition("What the evidence of here says:")[2]
    assert "A step takes 3.1 ms." in description[:200], "the first page has the sentences"


def test_snakemake_lint_asks_only_for_environments(unmeasured):
    """`make setup` installs envs/ before Snakemake, which is one of their packages, can start."""
    done = snakemake(unmeasured, "--lint")
    found = set(re.findall(r"^    \* (.*):$", done.stderr, re.MULTILINE))
    assert found == {"Specify a conda environment or container for each rule."}


def test_new_axis_value_measures_only_the_new_cell(checkout):
    before = rows(checkout)
    assert measured(run(checkout, EVIDENCE, config=TWO)) == [1]
    after = rows(checkout)
    assert len(after) == 2 and set(before) < set(after)
    assert "0 of 2 cases to measure" in lmperf(checkout, "list").stdout


def test_changed_function_is_measured_again_but_not_a_comment(checkout):
    module = checkout / "src/lmperf/instruments/dtypes.py"
    source = module.read_text()
    module.write_text(
        source.replace("import torch\n", "import torch  # why\n", 1) + "\nUNUSED = 1\n"
    )
    assert "mixed_precision" not in rules_in(dry_run(checkout, ONE))
    module.write_text(source.replace("    total = ", "    changed = True\n    total = ", 1))
    assert measured(run(checkout, EVIDENCE)) == [1]


def test_edited_evidence_is_set_aside_and_measured_again(checkout):
    path = checkout / EVIDENCE
    path.write_text(path.read_text().replace("10.0", "11.0"))
    verdict = snakemake(checkout, "verify")
    assert verdict.returncode != 0
    assert f"{EVIDENCE} was edited or truncated" in verdict.stderr
    assert "edited or truncated" in run(checkout, EVIDENCE)
    assert path.with_suffix(".csv.damaged").exists()
    assert ",10.0" in path.read_text()


def test_verify_names_missing_cells(checkout):
    assert "all is measured and right" in run(checkout, "verify")
    more = ONE.replace('"float32 + float32"', '"float32 + float32", "bfloat16 + bfloat16"')
    more = more.replace("[float32]", "[float32, bfloat16]")
    (checkout / "config/config.yaml").write_text(more)
    verdict = lmperf(checkout, "verify")
    assert verdict.returncode == 1
    assert "missing: experiment=accumulation, subject=bfloat16 + bfloat16" in verdict.stderr


def test_verify_of_one_machine_ignores_the_others(checkout):
    other = checkout / "report/elsewhere"
    shutil.copytree(checkout / "report/here", other)
    table = other / "evidence/mixed_precision.csv"
    table.write_text(table.read_text().replace("10.0", "11.0"))
    assert lmperf(checkout, "verify").returncode == 0
    assert lmperf(checkout, "verify", "here").returncode == 0
    verdict = lmperf(checkout, "verify", "--all")
    assert verdict.returncode == 1 and "elsewhere" in verdict.stderr
    unknown = lmperf(checkout, "verify", "nowhere")
    assert unknown.returncode == 2 and "no evidence of machine nowhere" in unknown.stderr


def test_bad_configuration_is_one_line_and_exit_code_2(unmeasured):
    done = snakemake(unmeasured, "report/report.md", config="preset: fast")
    assert done.returncode == 2
    assert "config/config.yaml: preset is 'fast'" in done.stderr


def test_other_machine_is_rendered_without_torch(checkout):
    report = checkout / "report/elsewhere"
    (checkout / "report/here").rename(report)
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
    assert "10.0001" in (report / "report.md").read_text()


def test_rows_are_repeated_in_part_of_a_run_only_on_request(unmeasured):
    config = attention(32)
    assert rules_in(dry_run(unmeasured, config)) == ["attention", "write_up", "overview"]
    run(unmeasured, "repeatability", config=config)
    kept = (unmeasured / "report/here/evidence/repeatability.csv").read_text()
    assert kept.count("\nattention,eager,") == 2
    forced = run(unmeasured, "--dry-run", "repeatability", "-R", "repeatability", config=config)
    assert "repeatability: all of it again" in forced
    assert rules_in(run(unmeasured, "--dry-run", "repeatability", config=config)) == []
