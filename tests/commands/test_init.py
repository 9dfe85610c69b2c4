"""Tests of `lmperf init`, which sets up the report in a user's own repository."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from repository import git

from lmperf.commands import init, installing
from lmperf.config.read import load_config

FILES = {
    *("Snakefile", "config/config.yaml", "profiles/default/profile.yaml"),
    *(".github/workflows/report.yml", ".gitignore", ".gitattributes"),
}
ENTRY = "my_functions:attention"
ROOT = Path(__file__).parents[2]


ADDRESS = "git+https://example.org/lmperf@0123"

STRATEGY_STEMS = {"distributed", "distributed_memory", "distributed_overlap"}


@pytest.fixture
def repository(folder, monkeypatch):
    """An empty Git repository with a module of attention, and lmperf from an address."""
    monkeypatch.setattr(installing, "_installed_from", lambda: ADDRESS)
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
        ("--model", {"end_to_end", "memory", "memory_timeline", "profiles", "warmup"}),
        ("--train-step", {"end_to_end"}),
        ("--optimizer", {"end_to_end", "profiles", "warmup"}),
        ("--ddp", STRATEGY_STEMS),
        ("--fsdp", STRATEGY_STEMS),
        ("--sharded-optimizer", STRATEGY_STEMS),
    ],
)
def test_each_kind_is_in_every_benchmark_that_takes_it(repository, lmperf, option, stems):
    assert lmperf("init", option, ENTRY)[0] == 0
    entries = load_config(Path("config/config.yaml")).declarations()
    assert {key.partition(".")[0] for key in entries} == stems
    assert all(one == {"entry": ENTRY} for one in entries.values())


def test_init_overwrites_nothing(repository, lmperf):
    there = "config/config.yaml"
    path = repository / there
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine\n")
    code, out, said = lmperf("init", "--attention", ENTRY)
    assert code == 2 and not out
    assert said.startswith(f"lmperf: {there} exists already; init overwrites nothing; to have it")
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


@pytest.mark.process
def test_solution_that_cannot_be_imported_writes_nothing(repository, lmperf):
    """A configuration without it would be in the way of the next `init`."""
    adapters = "import not_installed\ndef get_ddp(module):\n    return not_installed.DDP(module)\n"
    (repository / "my_adapters.py").write_text(adapters)
    code, out, said = lmperf("init", "--course", "my_adapters")
    assert code == 2 and not out and "No module named 'not_installed'" in said
    assert said.endswith("all is left out; mend that and run init again\n")
    assert not (repository / "config").exists()


SOLUTION = """
import torch

class Model(torch.nn.Module):
    def __init__(self, vocab_size, d_model, num_layers):
        super().__init__()
    def forward(self, tokens):
        return tokens

class AdamW(torch.optim.Optimizer):
    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, {})
    def step(self):
        pass

def get_ddp(module):
    return module
"""


@pytest.mark.process
def test_optimizer_of_a_solution_steps_its_model(repository, lmperf):
    (repository / "my_solution.py").write_text(SOLUTION)
    assert lmperf("init", "--course", "my_solution")[0] == 0
    entries = yaml.safe_load(Path("config/config.yaml").read_text())["implementations"]
    adamw = {"use": "my_solution:AdamW", "model": "my_model"}
    assert entries["end_to_end"] == {"my_model": "my_solution:Model", "my_adamw": adamw}


def test_init_outside_git_is_refused(folder, lmperf):
    code, _, said = lmperf("init")
    assert code == 2 and said.endswith("is in no Git repository; run git init there\n")


@pytest.mark.parametrize(
    ("given", "installed"),
    [
        ([], f"lmperf @ {ADDRESS}"),
        (["--install", "git+ssh://git@example.org/x"], "lmperf @ git+ssh://git@example.org/x"),
        (
            ["--install", "https://example.org/lmperf.whl"],
            "lmperf @ https://example.org/lmperf.whl",
        ),
        (["--install", "wheels/lmperf.whl"], "./wheels/lmperf.whl"),
    ],
)
def test_ci_installs_lmperf_from_the_address_that_is_known(repository, lmperf, given, installed):
    (repository / "wheels").mkdir()
    (repository / "wheels/lmperf.whl").touch()
    assert lmperf("init", *given)[0] == 0
    jobs = yaml.safe_load((repository / init.CI).read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job["steps"]]
    found = {step["run"] for step in steps if step.get("name") == "Install"}
    assert found == {f'pip install "{installed}"'}


@pytest.mark.parametrize("given", ["lmperf==0.2", "absent.whl", "git+file:///here"])
def test_unknown_address_of_lmperf_is_refused(repository, lmperf, given):
    code, _, said = lmperf("init", "--install", given)
    assert code == 2 and f"--install is {given}; it must be a Git address" in said.replace("'", "")
    assert written(repository) == set()


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        (
            {"url": "https://example.org/x", "vcs_info": {"vcs": "git", "commit_id": "01"}},
            "git+https://example.org/x@01",
        ),
        ({"url": "https://example.org/x.whl", "archive_info": {}}, "https://example.org/x.whl"),
        ({"url": "file:///here/x.whl", "archive_info": {}}, ""),
        ({"url": "file:///here", "dir_info": {"editable": True}}, ""),
        (None, ""),
    ],
)
def test_address_is_the_one_that_pip_recorded(monkeypatch, origin, address):
    text = origin and json.dumps(origin)
    installed = SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(installing, "distribution", lambda name: installed)
    assert installing._installed_from() == address


def test_without_an_address_no_ci_is_written(repository, lmperf, monkeypatch):
    monkeypatch.setattr(installing, "_installed_from", lambda: "")
    code, _, said = lmperf("init")
    assert code == 0 and written(repository) == FILES - {str(init.CI)}
    assert "name one by --install: git+https://..., or a wheel in this folder" in said


@pytest.mark.parametrize(
    ("asked", "is_said"),
    [
        ("torch~=2.6.0; python_version > '3'", True),
        ("torch>=2.4,<2.9", True),
        ("torch>=2.6", False),
        ("torch", False),
        ("torchvision==0.1", False),
    ],
)
def test_too_old_torch_of_the_repository_is_said_in_one_line(repository, lmperf, asked, is_said):
    (repository / "pyproject.toml").write_text(f'[project]\ndependencies = ["einops", "{asked}"]')
    code, _, said = lmperf("init")
    assert code == 0
    words = "and lmperf measures with torch>=2.11: change that there, or"
    assert (words in said.splitlines()[0]) is is_said and said.count(words) == is_said


def test_optimizer_beside_a_model_steps_it(repository, lmperf):
    assert lmperf("init", "--model", ENTRY, "--optimizer", ENTRY)[0] == 0
    custom = yaml.safe_load(Path("config/config.yaml").read_text())["implementations"]
    steps = custom["end_to_end"]["my_optimizer"]
    assert steps == {"use": ENTRY, "model": "mine"}, "not lmperf's model"
