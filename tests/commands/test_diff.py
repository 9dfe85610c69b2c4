"""`lmperf diff`: results by name, exit codes, one line for bad input."""

import json
import shutil
from dataclasses import fields

import pytest
from made_up import timed
from repository import commit, git

from lmperf.benchmarks import load
from lmperf.evidence.repeatability import second_times
from lmperf.evidence.store import RowFiles
from lmperf.reporting.numbers import Entry

IDENTITY = ("batch", "seq_len", "d_head", "dtype", "causal", "implementation", "phase")


def write(folder, factor=1.0, number=0, cells=20):
    """Evidence with cells whose times are multiplied by a factor."""
    grid = {"batch": [8], "d_head": [16], "dtype": ["float32"], "causal": [False]}
    grid |= {"seq_len": [*range(128, 128 + cells)], "implementation": ["eager"]}
    timed(folder, load("attention").cases("cpu", grid), lambda _: factor, f"run {number}")
    return str(folder)


@pytest.mark.slow
def test_diff_exits_with_1_on_a_regression(tmp_path, lmperf):
    old, new = write(tmp_path / "old"), write(tmp_path / "new", 1.1, 1)
    code, out, _ = lmperf("diff", old, new)
    assert code == 1 and out.startswith("Regressions beyond 2.0 %: 20 found\n")
    code, out, _ = lmperf("diff", new, old)
    assert code == 0 and out.startswith("Regressions beyond 2.0 %: none found\n")
    assert lmperf("diff", old, new, "--at-least", "20")[0] == 0
    only = ("--only", "seq_len=130,seq_len=131", "--format", "json")
    code, out, _ = lmperf("diff", old, new, *only)
    assert {row["axes"]["seq_len"] for row in json.loads(out)["rows"]} == {"130", "131"}


@pytest.mark.slow
def test_difference_within_the_noise_floor_is_no_regression(tmp_path, lmperf):
    old, new = write(tmp_path / "old"), write(tmp_path / "new", 1.1, 1)
    rows, _ = RowFiles(tmp_path / "old", "attention", IDENTITY).published()
    again = [
        row | {"benchmark": "attention", "median_ms": str(1.2 * float(row["median_ms"]))}
        for row in rows
    ]
    second_times(tmp_path / "old").publish(again)
    assert lmperf("diff", old, new)[0] == 0


@pytest.mark.parametrize(
    ("change", "expected", "why"),
    [
        ({"benchmark": "of_a_branch"}, 0, ""),
        ({"median_ms": "soon"}, 2, "repeatability.csv: Unable to parse"),
    ],
)
def test_unknown_second_times_are_left_out_damaged_ones_named(
    tmp_path, lmperf, change, expected, why
):
    old = write(tmp_path / "old")
    rows, _ = RowFiles(tmp_path / "old", "attention", IDENTITY).published()
    second_times(tmp_path / "old").publish([rows[0] | {"benchmark": "attention"} | change])
    code, _, err = lmperf("diff", old, old)
    assert code == expected and why in err


@pytest.mark.slow
def test_bad_input_prints_one_line_and_exits_with_2(tmp_path, lmperf):
    old = write(tmp_path / "old", cells=3)
    damaged = shutil.copytree(old, tmp_path / "damaged")
    with open(damaged / "evidence/attention.csv", "a") as file:
        file.write("edited\n")
    words = shutil.copytree(old, tmp_path / "words")
    for path in (words / "evidence").iterdir():
        path.unlink()
    fields = dict.fromkeys(IDENTITY, "1") | {"status": "ok", "median_ms": "soon"}
    RowFiles(words, "attention", IDENTITY).publish([fields])
    facts = shutil.copytree(old, tmp_path / "facts")
    (facts / "machine.json").write_text('{"machine": 1}')
    (tmp_path / "empty").mkdir()
    for arguments, why in (
        ((old, "nowhere"), "nowhere is neither a directory nor a machine"),
        ((old, str(tmp_path / "empty")), "no evidence: there is no"),
        ((old, str(damaged)), "attention.csv: line 5 is damaged and not used"),
        ((old, str(words)), "attention.csv: Unable to parse"),
        ((old, str(facts)), "does not hold the facts of a machine"),
        ((old, "machine@no-such-revision"), "not committed there"),
        ((old, "machine@--output=x"), "is not a revision"),
        ((old, old, "--only", "colour=red"), "no axis colour; there are: batch"),
        ((old, old, "--only", "dtype=red"), "share none of the requested rows"),
        ((old, old, "--benchmark", "lrpe"), "no benchmark lrpe in either; there are: attention"),
    ):
        code, out, error = lmperf("diff", *arguments)
        assert (code, out) == (2, "") and why in error and len(error.splitlines()) == 1, error
    for arguments in (("--only", "dtype"), ("--at-least", "0.1"), ("--at-least", "much")):
        assert lmperf("diff", old, old, *arguments)[0] == 2


@pytest.mark.process
def test_committed_evidence_is_compared(folder, lmperf):
    git(folder, "init", "-q")
    write(folder / "report/h200")
    commit(folder)
    write(folder / "report/h200", 1.1, 1)
    code, out, _ = lmperf("diff", "h200@HEAD", "h200")
    assert code == 1 and "h200@HEAD -> h200: 20 rows compared" in out


def test_moved_numbers_of_two_commits_are_listed(lmperf, folder):
    def write_number(value):
        heads = [one.name for one in fields(Entry)]
        line = f"report,sentence,It takes\x1b {value} ms.,{value},{value},,,ms,,key"
        path = folder / "report/here/numbers.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(",".join(heads) + f"\n{line}\n")

    git(folder, "init", "-q")
    write_number(35)
    commit(folder)
    write_number(36)
    code, out, _ = lmperf("diff", "--numbers", "here@HEAD", "here")
    assert code == 0 and out == "report: 35 -> 36: It takes␛ 36 ms.\n"
    assert lmperf("diff", "--numbers", "here", "here")[1] == "no printed number has moved\n"
    (folder / "report/here/numbers.csv").write_text("a,b\n")
    code, _, said = lmperf("diff", "--numbers", "here@HEAD", "here")
    assert code == 2 and "here has no numbers.csv that can be read" in said
