"""Tests of `lmperf init`, which sets up the report in a user's own repository."""

from pathlib import Path

import pytest
import yaml
from repository import git

from lmperf.commands import init
from lmperf.config import load_config

FILES = {
    *("Snakefile", "config/config.yaml", "profiles/default/profile.yaml"),
    *(".github/workflows/report.yml", ".gitignore", ".gitattributes"),
}
ENTRY = "my_functions:attention"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def repository(folder):
    """An empty Git repository with a module of attention."""
    (folder / "config/config.yaml").unlink()
    (folder / "config").rmdir()
    git(folder, "init", "-q")
    return folder


def written(root):
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] != ".git"} - {"my_functions.py"}


def test_init_writes_its_files_and_nothing_else(repository, lmperf):
    code, out, said = lmperf("init", "--attention", ENTRY)
    assert code == 0 and written(repository) == FILES == set(out.split())
    assert said.endswith("snakemake --cores 1 report/report.md --config preset=quick\n")


@pytest.mark.parametrize(
    ("option", "stems"),
    [
        ("--attention", {"attention", "flash_attention"}),
        ("--lrpe", {"lrpe", "lrpe_check"}),
        ("--model", {"end_to_end", "memory", "profiles", "warmup"}),
        ("--train-step", {"end_to_end"}),
    ],
)
def test_each_kind_is_in_every_benchmark_that_takes_it(repository, lmperf, option, stems):
    assert lmperf("init", option, ENTRY)[0] == 0
    entries = load_config(Path("config/config.yaml")).custom_entries()
    assert {key.partition(".")[0] for key in entries} == stems
    assert set(entries.values()) == {ENTRY}


def test_init_overwrites_nothing(repository, lmperf):
    there = "config/config.yaml"
    path = repository / there
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine\n")
    code, out, said = lmperf("init", "--attention", ENTRY)
    assert code == 2 and not out
    assert said == f"lmperf: {there} exists already; init overwrites nothing\n"
    assert written(repository) == {there} and path.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("name", "there", "lacking"),
    [
        (".gitignore", "/logs/\n__pycache__/\n", "/.lmperf/ /.snakemake/ /site/ "),
        (".gitignore", "# sp\xe4ter\n/logs/\n__pycache__/\n", "/.lmperf/ /.snakemake/ /site/ "),
        (".gitattributes", "*.csv text\n", "/report/** -text\n"),
    ],
)
def test_existing_settings_of_git_stay_and_lacking_lines_are_named(
    repository, lmperf, name, there, lacking
):
    (repository / name).write_text(there, encoding="latin-1")
    code, out, said = lmperf("init")
    assert code == 0 and name not in out
    assert (repository / name).read_text(encoding="latin-1") == there
    assert f"{name} exists and stays as it is; add these lines to it: {lacking}" in said


@pytest.mark.parametrize("kind", ["folder", "worktree"])
def test_init_works_in_a_folder_of_a_repository_and_in_a_worktree(
    repository, lmperf, monkeypatch, kind
):
    here = repository / "übung 2"
    if kind == "worktree":
        git(repository, "commit", "-q", "--allow-empty", "-m", "x")
        git(repository, "worktree", "add", "--detach", "-q", here)
    here.mkdir(exist_ok=True)
    monkeypatch.chdir(here)
    code, _, said = lmperf("init", "--attention", ENTRY)
    is_top = kind == "worktree"
    assert code == 0 and written(here) - {".git"} == FILES - (set() if is_top else {str(init.CI)})
    assert ("which works at the top of a repository only" in said) is not is_top


def test_generated_files_keep_line_endings_and_build_by_default(repository, lmperf):
    assert lmperf("init")[0] == 0
    said = git(repository, "check-attr", "text", "report/here/evidence/attention.csv")
    assert said.endswith("text: unset")
    assert (ROOT / ".gitattributes").read_text().endswith("\n/report/** -text\n")
    assert 'workflow.default_target = "all"\n' in (repository / "Snakefile").read_text()


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("no_such_module:f", "there is no module no_such_module; install it, or put it below"),
        ("my_functions", "it must be a function as package.module:function"),
        ("my_functions.py:attention", "write my_functions:attention"),
    ],
)
def test_wrong_entry_writes_nothing(repository, lmperf, entry, why):
    code, _, said = lmperf("init", "--lrpe", entry)
    assert code == 2 and why in said and said.count("\n") == 1
    assert written(repository) == set()


def test_init_outside_git_is_refused(folder, lmperf):
    code, _, said = lmperf("init")
    assert code == 2 and said.endswith("is in no Git repository; run git init there\n")


def test_ci_installs_the_version_that_measures(repository, lmperf, monkeypatch):
    monkeypatch.setattr(init, "version_of", lambda _: "1.2.3")
    assert lmperf("init")[0] == 0
    jobs = yaml.safe_load((repository / init.CI).read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    found = {step["run"] for step in steps if step.get("name") == "Install"}
    assert found == {"pip install lmperf==1.2.3"}
