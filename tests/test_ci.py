"""The steps of `.github/workflows/report.yml`, run here as a forge's CI runs them.

Steps that use an action of the forge are left out; `pip` and `gh` are stand-ins that only note what
they are called with.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repository import commit, git

from lmperf.config.read import load_config
from lmperf.evidence.facts import read_facts, write_facts
from lmperf.evidence.project import Project
from lmperf.evidence.store import read, write_view

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
JOBS = yaml.safe_load((ROOT / ".github/workflows/report.yml").read_text())["jobs"]
H200 = ROOT / "report/nvidia-h200"
TIMES = ("median_ms", "low_ms", "high_ms", "rounds_ms")
NOTE = '#!/bin/sh\necho "$0 $@" >> "$CALLS"\nif [ -e diff.md ]; then cat diff.md >> "$CALLS"; fi\n'


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository whose second commit changes a machine's evidence and adds another machine."""
    root = tmp_path_factory.mktemp("repository")
    (root / "config").mkdir()
    shutil.copy(ROOT / "config/config.yaml", root / "config")
    (root / ".gitignore").write_text("/site/\n/.lmperf/\n")
    copy("attention", root / "report/nvidia-h200", "nvidia-h200")
    git(root, "init", "-q", "-b", "main")
    commit(root)
    slow_down(root / "report/nvidia-h200/evidence/attention.csv")
    copy("mixed_precision", root / "report/another", "another")
    commit(root)
    return root


def copy(stem, machine, name):
    (machine / "evidence").mkdir(parents=True)
    rows = read(H200 / f"evidence/{stem}.csv")[0]
    write_view(machine / f"evidence/{stem}.csv", rows[:20])
    write_facts(machine, read_facts(H200, "nvidia-h200")[0] | {"machine": name})


def slow_down(path):
    """Make the times of one row three times as long."""
    rows = read(path)[0]
    row = next(row for row in rows if row["median_ms"] and float(row["median_ms"]) > 0.1)
    for name in TIMES:
        row[name] = ";".join(f"{3 * float(of)!r}" for of in row[name].split(";") if of)
    write_view(path, rows)


def run_job(name, root, tools, stand_ins=("pip", "gh"), **values):
    """Run the steps of a job; return what the stand-ins noted.

    values: the expressions of the forge that variables of steps have, by variable.
    """
    calls = tools / "calls"
    calls.write_text("")
    for tool in stand_ins:
        (tools / tool).write_text(NOTE)
        (tools / tool).chmod(0o755)
    path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
    known = os.environ | {"PATH": path, "CALLS": str(calls), "PYTHONPATH": str(ROOT / "src")}
    for step in JOBS[name]["steps"]:
        if "run" not in step:
            continue
        assert "${{" not in step["run"], "an expression in a script runs what a stranger wrote"
        own = {key: values[key] for key in step.get("env", {})}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(shell, cwd=root, env=known | own, capture_output=True, text=True)
        assert done.returncode == 0, (step["name"], done.stderr)
    return calls.read_text()


def test_site_is_rendered_from_committed_evidence(repository, tmp_path):
    """By commands that tests/test_pipeline.py runs."""
    calls = run_job("site", repository, tmp_path, ("pip", "lmperf")).splitlines()
    calls = [line for line in calls if "pip install" not in line]
    commands = ["report another", "report nvidia-h200", "report", "site"]
    assert calls == [f"{tmp_path}/lmperf {words}" for words in commands]
    uploaded = next(
        step for step in JOBS["site"]["steps"] if "pages-artifact" in step.get("uses", "")
    )
    config = load_config(repository / "config/config.yaml")
    assert uploaded["with"]["path"] == Project(config, repository).site_directory.name


def test_changed_evidence_is_posted_on_the_pull_request(repository, tmp_path):
    base = git(repository, "rev-parse", "HEAD~1")
    calls = run_job("diff", repository, tmp_path, BASE=base, NUMBER="7", GH_TOKEN="secret")
    [posted] = [line for line in calls.splitlines() if "gh pr comment" in line]
    assert " 7 --body-file diff.md" in posted
    new, changed = calls.index("## another"), calls.index("## nvidia-h200")
    assert "This machine is new." in calls[new:changed]
    assert "1 row compared: 1 slower" in calls[changed:]


def test_unchanged_evidence_posts_nothing(repository, tmp_path):
    head = git(repository, "rev-parse", "HEAD")
    (repository / "diff.md").unlink(missing_ok=True)
    calls = run_job("diff", repository, tmp_path, BASE=head, NUMBER="7", GH_TOKEN="secret")
    assert "gh pr comment" not in calls


def test_only_the_jobs_that_publish_may_write():
    permissions = yaml.safe_load((ROOT / ".github/workflows/report.yml").read_text())["permissions"]
    assert permissions == {"contents": "read"}
    writing = {name for name, job in JOBS.items() if "write" in str(job.get("permissions"))}
    assert writing == {"deploy", "diff"}
    assert JOBS["deploy"]["if"] == "github.event_name == 'push'"
