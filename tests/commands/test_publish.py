"""Tests of what `lmperf publish` refuses before it changes Git's index."""

from made_up import pretend
from repository import git


def test_report_behind_a_link_out_of_git_is_named(folder, lmperf, monkeypatch, tmp_path_factory):
    pretend(monkeypatch)
    git(folder, "init", "-q")
    assert lmperf("measure", "flash_attention")[0] == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "report"
    (folder / "report").rename(elsewhere)
    (folder / "report").symlink_to(elsewhere)
    code, _, said = lmperf("publish")
    assert (code, said.count("\n")) == (2, 1)
    assert f"report is a link to {elsewhere}, which is in no Git repository" in said
