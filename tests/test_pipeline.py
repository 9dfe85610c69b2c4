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
EVIDENCE = "report/here/evidence/mixed_precision.csv"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkout")
    copy_of(ROOT, root)
    return root


def copy_of(checkout, root):
    """Copy what a clone has of the pipeline, without any evidence."""
    shutil.copy(checkout / "Snakefile", root)
    for folder in ("config", "profiles", "rules", "templates", "src"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(checkout / folder, root / folder, ignore=ignored)


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


def ready(root, config=ONE):
    """Make the report of a configuration up to date, whatever an earlier test has left."""
    forget_caches()
    (root / "config/config.yaml").write_text(config)
    project = Project(load_config(root / "config/config.yaml"), root)
    due = any(plan.is_due for plan in project.plans.values())
    if due or not all(written.is_current(project, machine) for machine in ("here", None)):
        run(root, config=config)


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


def test_second_run_has_nothing_to_do(checkout):
    assert measured(run(checkout)) == [1]
    assert "10.0001" in (checkout / "report/here/report.md").read_text()
    assert (checkout / "report/report.md").exists()
    assert "Nothing to be done" in run(checkout)


def test_dry_run_lists_what_is_due_and_writes_nothing(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    (tmp_path / "config/config.yaml").write_text(ONE)
    before = tree(tmp_path)
    listed = dry_run(tmp_path, ONE)
    assert tree(tmp_path) == before
    assert rules_in(listed) == ["mixed_precision", "write_up", "overview"]
    assert "mixed_precision: 1 of 1 cases to measure (1 missing)" in listed


def test_dry_run_gives_the_true_reason_of_each_job(checkout):
    """A job that is due has a new input; only a job that the user forces is forced."""
    ready(checkout)
    reasons = reasons_in(dry_run(checkout, TWO))
    assert re.fullmatch(r"Updated input files: \S+/mixed_precision", reasons["mixed_precision"])
    updated = "Input files updated by another job: "
    assert reasons["write_up"].startswith(f"{updated}{EVIDENCE}")
    assert reasons["overview"].startswith(f"{updated}report/here/report.md")
    forced = reasons_in(run(checkout, "--dry-run", "-R", "mixed_precision"))
    assert [name for name in forced if forced[name] == "Forced execution"] == ["mixed_precision"]


@pytest.mark.parametrize(
    "options",
    [
        ("-R", "mixed_precision"),
        ("-R", EVIDENCE),
        ("--forcerun", "mixed_precision"),
        ("-F",),
        ("--forceall",),
        ("mixed_precision", "-f"),
    ],
    ids=" ".join,
)
def test_forced_benchmark_is_measured_whole(checkout, options):
    ready(checkout)
    listed = run(checkout, "--dry-run", *options)
    assert rules_in(listed)[0] == "mixed_precision"
    assert "mixed_precision: all of it again" in listed


def test_forced_run_also_runs_what_is_due(checkout):
    ready(checkout)
    forced = run(checkout, "--dry-run", "-R", "mixed_precision")
    assert rules_in(forced) == ["mixed_precision", "write_up", "overview", "all"]
    assert rules_in(run(checkout, "--dry-run", "-R", "overview")) == ["overview", "all"]
    also_due = run(checkout, "--dry-run", "-R", "overview", config=TWO)
    assert rules_in(also_due)[0] == "mixed_precision"
    before = rows(checkout)
    assert measured(run(checkout, "mixed_precision", "-R", "mixed_precision")) == [1]
    assert rows(checkout) != before
    also_due = run(checkout, "--dry-run", "-R", "mixed_precision", config=TWO)
    assert "mixed_precision: all of it again" in also_due


def test_command_line_overrides_the_grid(checkout):
    ready(checkout)
    grid = TWO.partition("grid: ")[2]
    listed = run(checkout, "--dry-run", "mixed_precision", "--config", f"grid={grid}")
    assert "1 of 2 cases to measure (1 missing)" in listed


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
def test_read_only_folder_is_one_line_and_exit_code_2(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    (tmp_path / "config/config.yaml").write_text(ONE)
    script = (
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && cd "$1" && shift && exec "$@"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "-", str(tmp_path)]
    command += [sys.executable, "-m", "snakemake", "--cores", "1", "--dry-run"]
    done = subprocess.run(command, env=environment_of(tmp_path), capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("mount is not permitted here")
    (line,) = (line for line in done.stderr.splitlines() if "lmperf" in line)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "is read-only" in line and "make it writable" in line


def test_kernel_tests_run_before_timings(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    config = "preset: cpu\nmachine: here\nbenchmarks: [flash_attention]\n"
    drawn = run(tmp_path, "report/report.md", "--rulegraph", "dot", config=config)
    node = {name: number for number, name in re.findall(r'(\d+)\[label = "(\w+)"', drawn)}
    assert f"{node['flash_attention_check']} -> {node['flash_attention']}" in drawn, drawn


def test_each_job_is_told_the_other_benchmarks_of_the_run(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    config = "preset: cpu\nmachine: here\nbenchmarks: [flash_attention, warmup]\n"

    def also(*arguments, config=config):
        """Stem -> the other benchmarks that its job is told about."""
        shown = run(tmp_path, "--dry-run", "--printshellcmds", *arguments, config=config)
        found = re.findall(r"measure (\w+).* --log \S+(?: --also (\S+))?", shown)
        return {stem: set(filter(None, others.split(","))) for stem, others in found}

    three = {"flash_attention", "flash_attention_check", "warmup"}
    assert also("report/report.md") == {stem: three - {stem} for stem in three}
    both = three - {"warmup"}
    assert also("flash_attention") == {stem: both - {stem} for stem in both}
    every = also("report/report.md", config="preset: cpu\nmachine: here\n")
    assert all("repeatability" in others for others in every.values()) and "end_to_end" in every
    # What a job of a forced benchmark has left cannot be seen from the evidence.
    forced = also("report/report.md", "-R", "warmup")
    assert forced == {"warmup": both, "flash_attention": set(), "flash_attention_check": set()}


def test_quick_run_is_in_order_and_nothing_is_measured_twice(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    config = "preset: cpu\nmachine: here\nbenchmarks: [memory, mixed_precision]\n"
    said = run(tmp_path, "report/report.md", "--config", "preset=quick", config=config)
    jobs = re.findall(r"(\w+): (\d+) of (\d+) cases to measure", said)
    assert jobs == [("mixed_precision", "9", "9"), ("memory", "2", "2")], said
    rest = dry_run(tmp_path, config)
    assert "mixed_precision: 4 of 13 cases to measure (4 missing)" in rest
    assert "memory: 5 of 7 cases to measure (5 missing)" in rest
    again = run(
        tmp_path, "--dry-run", "report/report.md", "--config", "preset=quick", config=config
    )
    assert rules_in(again) == []


def test_what_is_due_does_not_depend_on_snakemake_records(checkout):
    ready(checkout)
    shutil.rmtree(checkout / ".snakemake")
    assert rules_in(dry_run(checkout, ONE)) == []
    assert rules_in(dry_run(checkout, TWO)) == ["mixed_precision", "write_up", "overview"]
    shutil.rmtree(checkout / ".lmperf")
    assert rules_in(dry_run(checkout, ONE)) == ["write_up", "overview"]


def test_missing_output_below_one_from_the_future_is_due(checkout):
    ready(checkout)
    later = time.time() + 3600
    os.utime(checkout / "report/report.md", (later, later))
    (checkout / "report/here/report.md").unlink()
    assert rules_in(dry_run(checkout, ONE)) == ["write_up", "overview"]
    run(checkout)
    assert rules_in(dry_run(checkout, ONE)) == []


def test_failed_rendering_keeps_the_old_report_and_is_retried(checkout):
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


def test_edited_page_is_written_again(checkout):
    ready(checkout)
    page = checkout / "report/here/report.md"
    words = page.read_text()
    page.write_text(words + "A line of a reader's own.\n")
    assert lmperf(checkout, "summary", "here", "--current").returncode == 1
    run(checkout)
    assert page.read_text() == words
    assert lmperf(checkout, "summary", "here", "--current").returncode == 0


def test_edited_note_renders_again_and_measures_nothing(checkout):
    ready(checkout)
    folder = checkout / "report/here/notes"
    folder.mkdir()
    try:
        (folder / "mixed_precision.md").write_text(
            '---\nholds: value("mixed_precision", "eager", "value", dtype="float32") > 10\n---\n'
            "The words of an author.\n"
        )
        assert sorted(rules_in(dry_run(checkout, ONE))) == ["overview", "write_up"]
        assert measured(run(checkout)) == []
        for name in ("report.md", "here/report.md", "here/mixed_precision.md"):
            assert "> The words of an author." in (checkout / "report" / name).read_text()
        assert "Nothing to be done" in dry_run(checkout, ONE)
    finally:
        shutil.rmtree(folder)


def test_summary_names_the_report_and_what_is_wrong(checkout):
    ready(checkout)
    (checkout / "report/report.md").unlink()
    named = "report/report.md: the write-up of here"
    assert run(checkout).splitlines().count(named) == 1
    assert lmperf(checkout, "summary").stdout.splitlines() == [named]
    (checkout / "config/config.yaml").write_text(TWO)
    wrong = "  missing: 1 (mixed_precision 1)"
    assert lmperf(checkout, "summary").stdout.splitlines() == [named, wrong]


def test_list_due_names_every_case_with_its_reason(checkout):
    ready(checkout)
    (checkout / "config/config.yaml").write_text(TWO)
    said = lmperf(checkout, "list", "--due").stdout.splitlines()
    said = [line for line in said if not line.startswith("measured with lmperf ")]
    assert said[1] == "mixed_precision: 1 of 2 cases to measure (1 missing)"
    assert len(said) == 3 and said[2].endswith("eager: missing")


def test_snakemake_report_has_figures_and_pages(checkout, tmp_path):
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
    description = html.partition("What the evidence of here says:")[2]
    assert "A step takes 3.1 ms." in description[:200], "the first page has the findings"


def test_snakemake_lint_asks_only_for_environments(checkout):
    """`make setup` installs envs/ before Snakemake, which is one of their packages, can start."""
    done = snakemake(checkout, "--lint")
    found = set(re.findall(r"^    \* (.*):$", done.stderr, re.MULTILINE))
    assert found == {"Specify a conda environment or container for each rule."}


def test_remeasure_of_unmarked_rows_has_nothing_to_do(checkout):
    ready(checkout)
    listed = run(checkout, "--dry-run", "report/report.md", "--config", "remeasure=true")
    assert rules_in(listed) == []


def test_new_axis_value_measures_only_the_new_cell(checkout):
    ready(checkout)
    before = rows(checkout)
    assert measured(run(checkout, config=TWO)) == [1]
    after = rows(checkout)
    assert len(after) == 2 and set(before) < set(after)
    assert rules_in(dry_run(checkout, TWO)) == []


def test_changed_function_is_measured_again_but_not_a_comment(checkout):
    ready(checkout, config=TWO)
    module = checkout / "src/lmperf/instruments/dtypes.py"
    source = module.read_text()
    module.write_text(
        source.replace("import torch\n", "import torch  # why\n", 1) + "\nUNUSED = 1\n"
    )
    assert "mixed_precision" not in rules_in(dry_run(checkout, TWO))
    module.write_text(source.replace("    total = ", "    changed = True\n    total = ", 1))
    try:
        assert measured(run(checkout, config=TWO)) == [2]
    finally:
        module.write_text(source)


def test_edited_evidence_is_set_aside_and_measured_again(checkout):
    ready(checkout)
    path = checkout / EVIDENCE
    path.write_text(path.read_text().replace("10.0", "11.0"))
    verdict = snakemake(checkout, "verify")
    assert verdict.returncode != 0
    assert f"{EVIDENCE} was edited or truncated" in verdict.stderr
    assert "edited or truncated" in run(checkout)
    assert path.with_suffix(".csv.damaged").exists()
    assert rules_in(dry_run(checkout, ONE)) == []


def test_verify_names_missing_cells(checkout):
    ready(checkout)
    assert "all is measured and right" in run(checkout, "verify")
    more = ONE.replace('"float32 + float32"', '"float32 + float32", "bfloat16 + bfloat16"')
    verdict = snakemake(checkout, "verify", config=more.replace("[float32]", "[float32, bfloat16]"))
    assert verdict.returncode != 0
    assert "missing: experiment=accumulation, subject=bfloat16 + bfloat16" in verdict.stderr


def test_verify_of_one_machine_ignores_the_others(checkout):
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


def test_bad_configuration_is_one_line_and_exit_code_2(checkout):
    done = snakemake(checkout, "report/report.md", config="preset: fast")
    assert done.returncode == 2
    assert "config/config.yaml: preset is 'fast'" in done.stderr


def test_other_machine_is_rendered_without_torch(tmp_path, checkout):
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


TIMED = attention(32)


def test_rows_are_repeated_after_all_first_times(checkout):
    everything = "preset: cpu\nmachine: here\n"
    listed = dry_run(checkout, everything)
    assert "repeatability: 24 of 24 rows to measure a second time (24 missing)" in listed
    drawn = run(checkout, "report/report.md", "--rulegraph", "dot", config=everything)
    node = {name: number for number, name in re.findall(r'(\d+)\[label = "(\w+)"', drawn)}
    benchmarks = {*node} - {"repeatability", "write_up", "overview", "all"}
    for stem in benchmarks:
        assert f"{node[stem]} -> {node['repeatability']}" in drawn, stem
    assert f"{node['repeatability']} -> {node['write_up']}" in drawn


def test_rows_are_repeated_in_part_of_a_run_only_on_request(tmp_path, checkout):
    copy_of(checkout, tmp_path)
    assert rules_in(dry_run(tmp_path, TIMED)) == ["attention", "write_up", "overview"]
    run(tmp_path, "repeatability", config=TIMED)
    kept = (tmp_path / "report/here/evidence/repeatability.csv").read_text()
    assert kept.count("\nattention,eager,") == 2
    assert rules_in(run(tmp_path, "--dry-run", "repeatability", config=TIMED)) == []
    forced = run(tmp_path, "--dry-run", "repeatability", "-R", "repeatability", config=TIMED)
    assert "repeatability: all of it again" in forced
    run(tmp_path, config=TIMED)
    assert "#r1-repeatability) Repeatability" in (tmp_path / "report/here/report.md").read_text()
