"""lmperf as a user installs it: a wheel, and the worked example of docs/bring-your-own.md.

The wheel is installed into a new environment that sees the packages of this one.
"""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml
from documented import commands
from repository import commit, git

pytestmark = [pytest.mark.process, pytest.mark.snakemake, pytest.mark.slow]

ROOT = Path(__file__).parents[1]
SOURCES = ("Snakefile", "setup.py", "MANIFEST.in", "pyproject.toml", "README.md", "src", "rules")
SOURCES += ("templates", "profiles", "config", ".github")
SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
PAGE = (ROOT / "docs/bring-your-own.md").read_text()
EXAMPLE = PAGE.split("## From a solution")[1].split("\n## ")[0]
ENTRY = "cs336_systems.flash_attention:FlashAttentionPyTorch"
GRID = {"batch": [1], "d_head": [16], "seq_len": [32], "dtype": ["float32"]}
SMALL = {
    **{"preset": "quick", "machine": "here", "benchmarks": ["attention"]},
    "grid": {"attention": {**GRID, "implementation": ["eager"]}},
    "implementations": {"attention": {"flash_pytorch": ENTRY}},
}
REPORT = ("-m", "snakemake", "--cores", "1", "report/report.md")
EVIDENCE = "report/here/evidence/attention.csv"


def environment():
    """The variables of a new terminal: nothing leads to this checkout."""
    ours = ("PYTHONPATH", "LMPERF_COMMIT", "GIT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"GIT_CONFIG_GLOBAL": os.devnull}


def run(root, *command, codes=(0,)):
    known = dict(cwd=root, env=environment(), capture_output=True, text=True)
    done = subprocess.run(command, **known)
    assert done.returncode in codes, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The interpreter of an environment into which a wheel of lmperf was installed."""
    folder = tmp_path_factory.mktemp("installed")
    sources = folder / "sources"
    sources.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, sources / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, sources / name)
    run(sources, sys.executable, "-c", SDIST, folder)
    shutil.rmtree(sources)
    venv.create(folder / "venv", symlinks=True)
    [packages] = (folder / "venv").glob("lib/python*/site-packages")
    # Not --system-site-packages, whose .pth files may lead to an editable install of lmperf.
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = folder / "venv/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    alone = ("--no-deps", "--no-index", "--no-build-isolation")
    run(folder, *pip, *alone, next(folder.glob("*.tar.gz")))  # builds a wheel of it
    return python


@pytest.fixture(scope="module")
def repository(python, tmp_path_factory):
    """A student's Git repository after the commands of the example, with one small benchmark."""
    root = tmp_path_factory.mktemp("repository")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "examples/course", root, dirs_exist_ok=True, ignore=ignored)
    git(root, "init", "-q")
    programs = {"lmperf": (python.parent / "lmperf",), "snakemake": (python, "-m", "snakemake")}
    for line in commands(EXAMPLE):
        program, *words = shlex.split(line, comments=True)
        if program == "pip" or "try" in words:  # the report has the implementation that is tried
            continue
        # The tests load the machine, which `publish` finds at fault.
        codes = (0, 1) if "publish" in words else (0,)
        said = run(root, *programs[program], *words, codes=codes)
        if "--course" in words:
            require_documented_words(said, configured := root / "config/config.yaml")
            configured.write_text(yaml.safe_dump(yaml.safe_load(configured.read_text()) | SMALL))
            commit(root)
    return root


def require_documented_words(said, configured):
    """Whether `init` says and writes what the page shows."""
    shown = re.findall(r"^    (lmperf: .*)$", EXAMPLE, re.MULTILINE)
    assert len(shown) == 4 and {*shown} <= {*said.splitlines()}
    (example,) = re.findall(r"```yaml\n(.*?)```", EXAMPLE, re.DOTALL)
    assert {*example.splitlines()} <= {*configured.read_text().splitlines()}


def rows(root):
    with open(root / EVIDENCE, newline="") as file:
        return [*csv.DictReader(file)]


def test_worked_example_goes_from_a_solution_to_a_hand_in_once(python, repository):
    said = git(repository, "rev-parse", "HEAD")
    found = rows(repository)
    assert {row["implementation"] for row in found} == {"eager", "flash_pytorch"}
    assert {row["status"] for row in found} == {"ok"}
    assert all(row["commit"] == said[:12] for row in found), "the commit of the user's repository"
    facts = (repository / "report/here/machine.json").read_text()
    assert re.search(r'"lmperf": "\d+\.\d+\.\d+",', facts)
    page = (repository / "report/here/attention.md").read_text()
    assert ENTRY in page and (repository / "hand-in.html").exists()
    pages = [path.read_text() for path in (repository / "report").rglob("*.md")]
    assert not [text for text in pages if "](../../src/" in text], "the files are not there"
    commit(repository)
    assert "Nothing to be done" in run(repository, python, *REPORT)
    run(repository, python, "-m", "snakemake", "--report", "report.zip")
    (repository / "report.zip").unlink()
    assert rows(repository) == found
    assert git(repository, "status", "--porcelain") == ""


def test_edit_and_upgrade_say_what_is_stale_before_it_is_measured(python, repository):
    module = repository / "cs336_systems/flash_attention.py"
    facts = repository / "report/here/machine.json"
    [installed] = python.parents[1].glob("lib/python*/site-packages/lmperf-*.dist-info/METADATA")
    source, text, before = module.read_text(), installed.read_text(), facts.read_bytes()
    now = re.search(r"^Version: (.*)$", text, re.MULTILINE)[1]
    module.write_text(source.replace("TILE = 64", "TILE = 32"))
    installed.write_text(text.replace(f"\nVersion: {now}\n", "\nVersion: 9.9.9\n"))
    try:
        said = run(repository, python.parent / "lmperf", "list", "--due")
    finally:
        module.write_text(source)
        installed.write_text(text)
    assert "flash_pytorch: stale, code: cs336_systems.flash_attention" in said
    assert "eager: with its group" in said
    assert f"measured with lmperf {now}, this is 9.9.9: 1 of 2 measured cases are stale" in said
    assert facts.read_bytes() == before


MODULE = """
import lmperf.workflow

module performance:
    snakefile: lmperf.workflow.SNAKEFILE
    config: {"configfile": "performance.yaml"}

use rule * from performance as performance_*

rule mine:
    default_target: True
    input: "report/report.md"

onstart:
    performance.begin_run()
"""


def test_workflow_is_a_module_of_another_workflow(python, repository, tmp_path):
    shutil.copytree(repository, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config/config.yaml").rename(tmp_path / "performance.yaml")
    (tmp_path / "Snakefile").write_text(MODULE)
    snakemake = (python, "-m", "snakemake", "--cores", "1")
    (tmp_path / "report/report.md").unlink()
    said = run(tmp_path, *snakemake)
    assert "performance_overview" in said and "performance_attention" not in said
    assert (tmp_path / "report/report.md").exists()
    forced = run(tmp_path, *snakemake, "--dry-run", "-R", "performance_attention")
    assert "attention: all of it again" in forced
