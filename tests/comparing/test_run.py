"""Tests of the command `lmperf compare`."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict

import pytest

from lmperf.benchmarks import load
from lmperf.cli import main
from lmperf.comparing.versions import Version, version
from lmperf.errors import UserError
from lmperf.evidence.plan import Plan
from lmperf.measuring.rounds import LOOKS

pytestmark = pytest.mark.process

REFERENCE, TILED = "src/lmperf/attention/reference.py", "src/lmperf/attention/tiled.py"
RETURN = "    return scores.softmax(dim=-1) @ v\n"
SCALE = "    scale = q.shape[-1] ** -0.5 if scale is None else scale\n    with torch"


def compare(repository, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(repository.root / "src")}
    command = [sys.executable, "-m", "lmperf.cli", "compare", *arguments]
    return subprocess.run(
        command, cwd=repository.root, env=environment, capture_output=True, text=True
    )


def test_slower_and_wrong_implementations_are_regressions(repository):
    """A third one crashes in both versions."""
    repository.edit(REFERENCE, RETURN, f"    for _ in range(50):\n        scores.exp()\n{RETURN}")
    repository.edit(TILED, SCALE, SCALE.replace("-0.5", "-0.6"))
    crashes = ("--config", "implementations.flash_attention.mine=builtins:max")
    arguments = ("--only", "d_head=16", "--phases", "forward", "--format", "json", *crashes)
    done = compare(repository, "--benchmark", "flash_attention", *arguments)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    rows = {row["implementation"]: row for row in found["rows"]}
    assert {row["phase"] for row in found["rows"]} == {"forward"} and len(rows) == 2
    assert rows["eager"]["verdict"] == "slower" and rows["eager"]["ratio"] < 0.5
    assert rows["eager"]["rounds"] >= LOOKS[0]
    assert rows["tiled"]["verdict"] == "broken" and rows["tiled"]["state_old"] == "ok"
    assert "float64" in rows["tiled"]["reason_new"]
    assert found["old"].startswith("HEAD (")
    assert found["new"].endswith("with uncommitted changes)")
    assert found["not_compared"] == {"ok in neither": 1}, "a crash costs its own case"
    assert "[compare] 3 of 3 cases" in done.stderr and "mine: forward crash -> crash" in done.stderr
    assert repository.worktrees == 0
    assert not (repository.root / "report").exists(), "no evidence is written"


@pytest.fixture
def same_code(monkeypatch):
    """Skip the processes that tell the code of a version: it is that of every other one."""
    monkeypatch.setattr(Version, "codes", lambda *_: defaultdict(dict))


def test_bad_input_prints_one_line_and_exits_2(repository, same_code, monkeypatch, capsys):
    monkeypatch.chdir(repository.root)
    for arguments, why in (
        (["nowhere"], "nowhere: neither a Git revision nor a directory"),
        (["--", "--all"], "--all: neither"),
        (["HEAD", "HEAD", "HEAD"], "Got unexpected extra argument (HEAD)"),
        (["--benchmark", "memory"], "there is no timed benchmark memory; there are: attention"),
        (["--benchmark", "attention", "--only", "seq_len=x"], "--only: seq_len is 'x'; it must be"),
        (["--benchmark", "attention", "--phases", "train_step"], "no phase train_step"),
    ):
        assert main(["compare", *arguments]) == 2
        out, error = capsys.readouterr()
        assert not out and why in error and len(error.splitlines()) == 1
        assert repository.worktrees == 0


def test_version_with_another_method_or_without_code_is_refused(repository, monkeypatch):
    repository.edit("src/lmperf/measuring/worker.py", "PROTOCOL = 7\n", "PROTOCOL = 6\n")
    repository.git("commit", "-qam", "an earlier protocol")
    repository.git("rm", "-rq", "src")
    repository.git("commit", "-qm", "nothing")
    repository.git("checkout", "-q", "HEAD~2", "--", "src")
    monkeypatch.chdir(repository.root)
    benchmark = load("attention")
    chosen = [Plan(benchmark, tuple(benchmark.cases("cpu")[:1]), None, None)]
    for name, words in (("HEAD^", "cannot be timed in turn"), ("HEAD", "it has no src/lmperf")):
        with pytest.raises(UserError, match=words), version(name) as old:
            old.codes(chosen)


def test_only_benchmarks_whose_code_differs_are_compared(repository, tmp_path, monkeypatch, capsys):
    """Here in two directories, outside a repository."""
    monkeypatch.chdir(tmp_path)
    options = ["--configfile", str(repository.root / "config/config.yaml"), "compare"]
    assert main(options) == 2
    old = shutil.copytree(repository.root, tmp_path / "old")
    repository.edit("src/lmperf/lrpe/reference.py", "wide = x.float()", "wide = 1 * x.float()")
    assert main([*options, str(old), str(repository.root), "--only", "seq_len=64"]) == 2
    assert "no axis seq_len" in capsys.readouterr().err, "only lrpe differs"


def test_equal_code_is_not_compared(repository, same_code, monkeypatch, capsys):
    monkeypatch.chdir(repository.root)
    assert main(["compare"]) == 0
    out, error = capsys.readouterr()
    assert "no benchmark differs" in error and not out


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def number(request):
    """A signal that is not ignored, as SIGHUP is if nohup runs the tests."""
    number = request.param
    before = signal.getsignal(number)
    if before == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
    yield number
    signal.signal(number, before)


def test_compare_ended_by_a_signal_leaves_no_worktree(repository, monkeypatch, number):
    trees = []

    def ended(old, _):
        assert repository.worktrees == 1 and (old.tree / "src/lmperf").is_dir()
        trees.append(old.tree)
        os.kill(os.getpid(), number)

    monkeypatch.chdir(repository.root)
    monkeypatch.setattr(Version, "codes", ended)
    try:
        code = main(["compare"])
    except SystemExit as end:
        code = end.code
    assert code == 128 + number
    assert repository.worktrees == 0 and not trees[0].parent.exists()
