"""Tests of the commit that is recorded in rows, and of the version of lmperf."""

import os
import shutil

import pytest
from repository import commit, git

from lmperf.machine import repository as repository_module
from lmperf.machine.repository import commit_facts, lmperf_version


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A Git repository without changes, with one Python file in the lmperf package."""
    monkeypatch.delenv("LMPERF_COMMIT", raising=False)
    for key in [key for key in os.environ if key.startswith("GIT_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    package = tmp_path / "src/lmperf"
    package.mkdir(parents=True)
    (package / "clock.py").write_text("x = 1\n")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.yaml").write_text("{}\n")
    (tmp_path / ".gitignore").write_text("ignored.py\n__pycache__/\nreport/\n")
    monkeypatch.setattr(repository_module, "_PACKAGE", package)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        *(("src/lmperf/new.py", True), ("src/lmperf/benchmarks/new ü.py", True)),
        *(("src/lmperf/clock.py", True), ("src/lmperf/__pycache__/clock.pyc", False)),
        *(("report/here/report.md", False), ("notes.txt", False), ("ignored.py", False)),
        ("config/config.yaml", False),
    ],
)
def test_changed_or_untracked_code_makes_commit_dirty(checkout, name, dirty):
    path = checkout / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x = 2\n")
    known = git(checkout, "rev-parse", "HEAD")
    assert commit_facts(checkout) == ({"commit": known, "dirty": dirty}, "")


@pytest.fixture
def repository(checkout, tmp_path_factory):
    """A user's repository beside the checkout of lmperf, with one committed module."""
    root = tmp_path_factory.mktemp("repository")
    (root / "mine.py").write_text("x = 1\n")
    (root / ".gitignore").write_text(".venv/\n")
    git(root, "init", "-q")
    commit(root)
    return root


def test_commit_is_that_of_the_users_repository(checkout, repository):
    (checkout / "src/lmperf/clock.py").write_text("x = 2\n")
    known = git(repository, "rev-parse", "HEAD")
    assert commit_facts(repository) == ({"commit": known, "dirty": False}, "")


def test_other_folders_without_code_can_be_named(repository):
    page = repository / "lmperf-report/report.md"
    page.parent.mkdir()
    page.write_text("# A page\n")
    clean = {"commit": commit(repository), "dirty": False}
    page.write_text("# Another\n")
    assert commit_facts(repository) == ({**clean, "dirty": True}, "")
    assert commit_facts(repository, ("config", "lmperf-report")) == (clean, "")


def test_folder_of_a_larger_repository_counts_alone(repository):
    folder = repository / "a2"
    for name in ("mine.py", "config/config.yaml", "report/report.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    clean = {"commit": commit(repository), "dirty": False}
    for path in (
        repository / "mine.py",
        folder / "config/config.yaml",
        folder / "report/report.md",
    ):
        path.write_text("x = 2\n")
    assert commit_facts(folder) == (clean, "")
    (folder / "mine.py").write_text("x = 2\n")
    assert commit_facts(folder) == ({**clean, "dirty": True}, "")


def test_commit_outside_git_is_that_of_lmperf(checkout, tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    known = git(checkout, "rev-parse", "HEAD")
    assert commit_facts(folder) == ({"commit": known, "dirty": False}, "")


def test_variables_of_a_hook_do_not_choose_the_repository(checkout, repository, monkeypatch):
    monkeypatch.setattr(repository_module, "version_of", lambda name: "1.2")
    known, facts = lmperf_version(repository), commit_facts(repository)
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / "no_index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repository))
    assert lmperf_version(repository) == known != "1.2"
    assert commit_facts(repository) == facts


def test_version_names_the_commit_of_another_checkout(checkout, repository, monkeypatch):
    monkeypatch.setattr(
        repository_module, "version_of", lambda name: "1.2" if name == "lmperf" else None
    )
    assert lmperf_version(checkout) == "1.2"
    found = f"1.2 ({git(checkout, 'rev-parse', 'HEAD')[:12]})"
    assert lmperf_version(repository) == found
    (checkout / "src/lmperf/clock.py").write_text("x = 2\n")
    monkeypatch.setenv("LMPERF_COMMIT", "a" * 40)  # of the code that is measured
    assert lmperf_version(repository) == f"{found[:-1]}-dirty)"
    monkeypatch.setattr(repository_module, "_PACKAGE", repository / ".venv/lib/lmperf")
    assert lmperf_version(repository) == "1.2"


def test_commit_is_unknown_if_git_fails_and_its_message_says_why(checkout, monkeypatch):
    def why():
        facts, problem = commit_facts(checkout)
        assert facts == {"commit": None, "dirty": None}
        return problem

    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(checkout))
        assert why() == "git cannot be run: No such file or directory"
    with monkeypatch.context() as patch:
        patch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        assert "dubious ownership" in why()
    (checkout / ".git/index").write_bytes(b"damaged")
    assert "index file" in why()
    shutil.rmtree(checkout / ".git")
    assert "not a git repository" in why()
    git(checkout, "init", "-q")
    assert "does not have any commits yet" in why()


def test_lmperf_commit_variable_overrides_git(checkout, monkeypatch):
    monkeypatch.setenv("LMPERF_COMMIT", "a" * 40)
    assert commit_facts(checkout) == ({"commit": "a" * 40, "dirty": None}, "")
