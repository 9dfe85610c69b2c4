"""Versions of a user's module, in a repository without the code of lmperf."""

import pytest
from repository import commit, git

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load
from lmperf.comparing.versions import version, working_tree
from lmperf.errors import UserError
from lmperf.evidence.plan import Plan

pytestmark = pytest.mark.process

MODULE = "def attention(q, k, v, causal=False):\n    return v\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A user's repository with an edit that is not committed."""
    for name in ("config", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "config/config.yaml").write_text("{}\n")
    (tmp_path / "mine/attention.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    (tmp_path / "mine/attention.py").write_text(MODULE.replace("return v", "return 2 * v"))
    return tmp_path


@pytest.fixture
def chosen():
    entry = Implementation("mine", "mine.attention:attention", origin="custom")
    benchmark = load("attention", {"mine": entry})
    cases = [case for case in benchmark.cases("cpu") if case.implementation in ("mine", "eager")]
    by_name = {case.implementation: case for case in cases}
    return [Plan(benchmark, tuple(by_name.values()), None, None)]


def test_only_the_users_code_differs_between_versions(own, chosen, tmp_path_factory):
    clone = tmp_path_factory.mktemp("clone")
    git(own, "clone", "-q", own, clone)
    with version("HEAD") as old:
        before = old.codes(chosen)
    assert "HEAD" in old.name and not old.tree.exists()
    after = working_tree().codes(chosen)["attention"]
    assert before["attention"]["eager"] == after["eager"]
    assert before["attention"]["mine"] != after["mine"]
    with version(str(clone)) as directory:
        assert directory.tree == clone


def test_other_folder_is_no_version(own, tmp_path_factory):
    folder = tmp_path_factory.mktemp("other")
    words = f"{folder}: neither a Git revision nor a directory with src/lmperf or config/config"
    with pytest.raises(UserError, match=words), version(str(folder)):
        pass
