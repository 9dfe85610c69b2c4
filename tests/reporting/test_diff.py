"""`lmperf diff` compares two runs, here synthetic ones whose true differences are known."""

import json
import re
import shutil
import subprocess

import markdown
import numpy as np
import pytest
import synthetic

from lmperf.benchmarks import load
from lmperf.cli import main
from lmperf.evidence.store import Evidence
from lmperf.reporting.diff.comparison import compare, without
from lmperf.reporting.diff.forms import as_json, as_markdown, as_text
from lmperf.reporting.diff.results import read_result
from lmperf.reporting.evidence import having
from lmperf.reporting.numbers import percent
from lmperf.statistics import paired

CELLS, ROUNDS = 300, 6
# Relative noise of rounds within a run, and of a whole row between runs. Intervals over rounds do
# not include the noise between runs.
WITHIN, BETWEEN = 0.01, 0.004
IDENTITY = ("seq_len", "dtype", "implementation", "phase")


def rows_of_run(seed, factor=1.0, mhz=1980.0, cells=CELLS, **columns):
    """Rows of one run. The true times are equal in all runs, but multiplied by ``factor``."""
    noise = np.random.default_rng(seed)
    return [
        {
            "seq_len": 128 + cell,
            "dtype": "float32",
            "implementation": "eager",
            "phase": "forward",
            "status": "ok",
            **times_of((1 + cell % 7) * factor * between(noise), noise),
            "again_ms": times_of((1 + cell % 7) * factor * between(noise), noise)["rounds_ms"],
            "clock_mhz": mhz,
            "measured_at": f"run {seed}",
            "key": "k",
            "environment": "e",
            **columns,
        }
        for cell in range(cells)
    ]


def between(noise):
    return np.exp(BETWEEN * noise.standard_normal())


def times_of(ms, noise):
    rounds = (ms * np.exp(WITHIN * noise.standard_normal(ROUNDS))).tolist()
    return {"median_ms": float(np.median(rounds)), "rounds_ms": ";".join(map(repr, rounds))}


@pytest.fixture
def result(tmp_path):
    """A function that writes rows as evidence of a machine and reads them as a result to compare.

    With ``read=False`` it returns the path of the directory instead.
    """

    def write(name, rows, read=True, identity=IDENTITY, **facts):
        directory = tmp_path / name
        Evidence(directory / "evidence/topic.csv", identity, identity).replace(rows)
        known = {"machine": "h200", "environments": {"e": {"kind": "cuda", **facts}}}
        (directory / "machine.json").write_text(json.dumps(known))
        return read_result(str(directory)) if read else str(directory)

    return write


def shares_of(found):
    return {name: number / len(found.rows) for name, number in found.counts.items()}


def test_runs_of_equal_code_differ_in_at_most_1_percent(result):
    found = shares_of(compare(result("old", rows_of_run(1)), result("new", rows_of_run(2))))
    assert found["faster"] + found["slower"] + found["clock"] <= 0.01


@pytest.mark.parametrize("percent, least", [(10, 0.95), (3, 0.5)])
def test_planted_slowdown_is_detected(result, percent, least):
    found = compare(result("old", rows_of_run(1)), result("new", rows_of_run(2, 1 + percent / 100)))
    assert shares_of(found)["slower"] >= least
    assert shares_of(found)["faster"] == 0


def test_one_slow_row_among_many_is_detected(result):
    new = rows_of_run(2)
    new[17].update(times_of(2.0 * new[17]["median_ms"], np.random.default_rng(0)))
    found = compare(result("old", rows_of_run(1)), result("new", new))
    assert found.rows.iloc[0]["axes"] == {"seq_len": "145", "dtype": "float32"}
    assert found.rows.iloc[0]["verdict"] == "slower" and found.counts["slower"] <= 3


def test_slowdown_explained_by_the_clock_is_no_regression(result):
    old = result("old", rows_of_run(1))
    clocked = compare(old, result("clocked", rows_of_run(2, 1.1, mhz=1800.0)))
    assert shares_of(clocked)["clock"] >= 0.95 and clocked.regressions == 0
    both = compare(old, result("both", rows_of_run(2, 1.2, mhz=1800.0)))
    assert shares_of(both)["slower"] >= 0.95, "the clock explains half of it"
    assert 0.90 < both.rows["cycles"].median() < 0.93


def test_slowdown_at_equal_clocks_is_never_the_clock_s(result):
    """Also just beyond a wide floor, where 1 - 1/ratio is within it."""

    def apart(seed, factor=1.0):
        rows = rows_of_run(seed, factor)
        for row in rows:
            ms = [1.38 * float(time) for time in row["rounds_ms"].split(";")]
            row["again_ms"] = ";".join(map(repr, ms))
        return rows

    found = compare(result("old", apart(1)), result("new", apart(2, 1.48)))
    assert found.counts["clock"] == 0 and shares_of(found)["slower"] >= 0.9


def test_clocks_of_rounds_override_the_clock_of_the_row(result):
    mhz = ";".join(["1800.0"] * ROUNDS)
    new = result("new", rows_of_run(2, 1.1, mhz=1980.0, rounds_mhz=mhz))
    assert shares_of(compare(result("old", rows_of_run(1)), new))["clock"] >= 0.95


def test_cycles_are_compared_only_between_equal_gpu_models(result):
    old, slow = rows_of_run(1), rows_of_run(2, 1.1, mhz=1800.0)
    for facts in ({"device": "H100"}, {"kind": "cpu", "device": "H200"}):
        found = compare(result("old", old, device="H200"), result("new", slow, **facts))
        assert shares_of(found)["slower"] >= 0.95 and found.rows["cycles"].isna().all()


def test_differences_below_the_noise_floor_do_not_count(result):
    old, slow = result("old", rows_of_run(1)), rows_of_run(2, 1.1)
    assert compare(old, result("new", slow), at_least=0.15).regressions == 0
    noisy = [{**row, "again_ms": ";".join(["1e-3"] * ROUNDS)} for row in slow]
    found = compare(old, result("noisy", noisy))
    assert found.regressions == 0 and any("noise floor" in n for n in found.notes)


@pytest.mark.parametrize("mark", ["loaded", "drift", "host"])
@pytest.mark.parametrize("side", [0, 1])
def test_rows_of_a_disturbed_machine_are_unresolved(result, mark, side):
    runs = [rows_of_run(1), rows_of_run(2, 1.5)]
    runs[side] = [{**row, "marks": mark} for row in runs[side]]
    found = compare(result("old", runs[0]), result("new", runs[1]))
    assert found.counts["unresolved"] == CELLS and found.regressions == 0
    head = f"Regressions beyond 2.0 %: none found, {CELLS} of {CELLS} rows undecided\n"
    assert as_text(found).startswith(head)
    assert found.same_code[0] == 0, "nor do they tell how far runs are apart"


def test_difference_that_is_not_confirmed_is_unresolved(result):
    old, slow = result("old", rows_of_run(1)), result("new", rows_of_run(2, 1.1))
    found = compare(old, slow)
    again = compare(result("a", rows_of_run(3, cells=9)), result("b", rows_of_run(4, 1.1, cells=9)))
    confirmed = without(found, again).rows.set_index("name")["verdict"]
    seen = again.rows.loc[again.rows["verdict"] == "slower", "name"]
    assert len(seen) >= 8 and set(confirmed[confirmed == "slower"].index) <= set(seen)
    assert without(found, None).regressions == 0


def test_regression_must_be_slower_than_both_old_processes(result):
    old, new = rows_of_run(1), result("new", rows_of_run(2, 1.06))
    for factor, named in ((1.0, True), (1.06, False)):
        # `again_ms` has the times of a second old process. In one cell of fifty, that process is as
        # slow as the new version if the factor is 1.06.
        usual, odd = rows_of_run(3), rows_of_run(3, factor)
        twin = [odd[i] if i % 50 == 0 else usual[i] for i in range(CELLS)]
        rows = [{**a, "again_ms": b["rounds_ms"]} for a, b in zip(old, twin, strict=True)]
        found = compare(result(f"old {factor}", rows), new, estimate=paired).rows
        said = found["verdict"] == "slower"
        is_odd = np.array([(int(axes["seq_len"]) - 128) % 50 == 0 for axes in found["axes"]])
        assert said[~is_odd].mean() > 0.9 and (said[is_odd].mean() > 0.9) == named


@pytest.mark.parametrize(
    "broken", [{"status": "crash"}, {"status": "oom"}, {"max_error": 1.0, "error_bound": 0.1}]
)
def test_broken_row_is_the_worst_regression(result, broken):
    old, new = rows_of_run(1, cells=5), rows_of_run(2, cells=5)
    new[3].update(broken, reason="for this reason")
    found = compare(result("old", old), result("new", new))
    assert found.rows.iloc[0]["verdict"] == "broken" and found.regressions == 1
    assert "for this reason" in as_text(found).splitlines()[-len(new)]
    assert compare(result("old", new), result("new", old)).counts["mended"] == 1


def test_ratio_is_the_quotient_of_the_times_beside_it(result):
    old, new = rows_of_run(1, cells=9), rows_of_run(2, 1.1, cells=9)
    for row in (*old, *new):
        row["median_ms"] *= 1.3  # the median of all calls is none of the rounds
    rows = compare(result("old", old), result("new", new)).rows
    assert rows["ratio"].tolist() == (rows["median_ms_old"] / rows["median_ms_new"]).tolist()


@pytest.mark.parametrize("both", [True, False])
def test_steps_with_sustained_times_are_compared_by_these(result, both):
    old, new = rows_of_run(1, cells=9), rows_of_run(2, 1.1, cells=9)
    for row, lasting in [(row, 3.0) for row in old] + [(row, 2.0) for row in new]:
        row |= {"phase": "train_step", "sustained_rounds_ms": f"{lasting};{lasting}"}
        row["sustained_mhz"] = 1400.0
    if not both:
        new[0]["sustained_rounds_ms"] = None
    rows = compare(result("old", old), result("new", new)).rows
    lasting = rows["ratio"] == 1.5
    assert lasting.sum() == (9 if both else 8)
    assert (rows["cycles"][lasting] == 1.5).all()


def test_rows_that_are_not_compared_are_counted(result):
    old, new = rows_of_run(1, cells=8), rows_of_run(2, cells=10)
    old[0]["status"] = new[0]["status"] = "unsupported"
    new[1] = dict(old[1])
    old[2]["rounds_ms"] = None
    found = compare(result("old", old), result("new", new[:3] + new[4:]))
    assert found.only == (1, 2) and found.neither == 1
    assert found.identical == 1 and found.untimed == 1 and len(found.rows) == 4


def test_rows_with_an_axis_of_one_version_are_not_compared(result):
    old, more = rows_of_run(1, cells=3), [{**row, "heads": 4} for row in rows_of_run(2, cells=2)]
    new = result("new", [*more, *rows_of_run(3, cells=3)], identity=("heads", *IDENTITY))
    found = compare(result("old", old), new)
    assert len(found.rows) == 3 and found.only == (0, 2)


def test_notes_state_changed_software_keys_and_marks(result):
    rows = rows_of_run(1, cells=3)
    old = result("old", rows, torch="2.11", device="H200")
    other = [{**row, "key": "other", "marks": "loaded"} for row in rows]
    new = result("new", [{**r, "measured_at": "later"} for r in other], torch="2.12", device="H200")
    notes = compare(old, new).notes
    assert "torch: 2.11, now 2.12" in notes and not any("machines" in note for note in notes)
    assert any(note.startswith("3 of 3 rows have another key") for note in notes)
    assert any(n.startswith("3 rows marked") and n.endswith("unresolved") for n in notes)


def test_rows_with_equal_keys_give_the_noise_between_runs(result):
    old, new = rows_of_run(1), [*rows_of_run(2)[:200], *rows_of_run(2, 2.0, key="changed")[200:]]
    found = compare(result("old", old), result("new", new))
    rows, floor = found.same_code
    assert rows == 200 and 0.005 < floor < 0.025
    assert f"differ by at most {100 * floor:.1f} %" in as_text(found)


def test_rows_are_sorted_worst_first_one_line_each(result):
    new = rows_of_run(2, 1.1, cells=40)[:20] + rows_of_run(2, cells=40)[20:]
    found = compare(result("old", rows_of_run(1, cells=40)), result("new", new))
    verdicts = found.rows["verdict"].tolist()
    assert verdicts[:18] == ["slower"] * 18
    assert found.rows["ratio"][: verdicts.count("slower")].is_monotonic_increasing
    assert len(as_text(found).partition("\n\n")[2].splitlines()) == 1 + len(found.rows)


def test_two_devices_have_no_regressions(result):
    old = result("old", rows_of_run(1), device="H200")
    new = result("new", rows_of_run(2, 1.4), device="H100")
    found = compare(old, new)
    assert found.counts["slower"] > 250 and found.regressions == 0
    assert re.match(r"Two devices: \d+ rows faster on .*old, 0 on .*new, of 300", as_text(found))
    assert compare(old, result("same", rows_of_run(2, 1.4), device="H200")).regressions > 250


def test_two_devices_have_the_larger_of_their_noise_floors(result):
    """Few pairs of a noisy device do not drown in the many pairs of a quiet one."""
    noisy = rows_of_run(2, cells=12)
    for row in noisy:
        ms = [1.3 * float(time) for time in row["rounds_ms"].split(";")]
        row["again_ms"] = ";".join(map(repr, ms))
    quiet = result("quiet", rows_of_run(1), device="H200")
    here = compare(quiet, result("here", noisy, device="H200")).rows["floor"]
    there = compare(quiet, result("there", noisy, device="H100")).rows["floor"]
    assert here.dropna().max() < 0.1 and there.dropna().min() > 0.25


def test_two_devices_are_called_by_their_names(result):
    old, new = rows_of_run(1, cells=9), rows_of_run(2, 1.4, key="other", cells=9)
    new[0] |= {"status": "oom", "median_ms": None, "rounds_ms": None}
    found = compare(result("a", old, device="H200"), result("b", new, device="H100"))
    for text in (as_text(found), as_markdown(found)):
        assert re.search(r"failing on \S*b\W", text) and re.search(r"8 faster on \S*a\W", text)
        assert not re.search(r"\b(broken|old|another key)\b", text)


@pytest.mark.parametrize("mark", ["capped", "contradicts"])
def test_rows_that_may_not_hold_are_unresolved_between_devices(result, mark):
    old, new = rows_of_run(1, cells=9), rows_of_run(2, 1.4, marks=mark, cells=9)
    devices = compare(result("a", old, device="H200"), result("b", new, device="H100"))
    assert devices.counts["unresolved"] == 9
    same = compare(result("a", old, device="H200"), result("b", new, device="H200"))
    assert same.counts["slower"] == 9, "a regression must not hide behind a mark of power"


def test_rows_that_contradict_another_cell_are_marked(tmp_path):
    rows = having(synthetic.gpu_evidence().frames["lrpe"], shape="256", phase="forward")
    rows = rows[rows["implementation"].isin(["copy", "triton"])].groupby("implementation").head(1)
    rows = rows.assign(extra_tokens=0, environment="e", retaken="True", marks="", bytes=10**9)
    times = {"copy": "2.0", "triton": "1.0"}
    for name in ("median_ms", "p20_ms", "p80_ms"):
        rows[name] = rows["implementation"].map(times)
    identity = load("lrpe").identity
    texts = rows.astype(object).where(rows.notna(), "").astype(str).to_dict("records")
    Evidence(tmp_path / "evidence/lrpe.csv", identity, identity).replace(texts)
    facts = {"machine": "h200", "environments": {"e": {"kind": "cuda"}}}
    (tmp_path / "machine.json").write_text(json.dumps(facts))
    assert {*read_result(str(tmp_path)).frames["lrpe"]["marks"]} == {"contradicts"}


def test_sustained_steps_that_waited_for_a_slow_host_are_marked(tmp_path):
    rows = having(synthetic.gpu_evidence().frames["end_to_end"], size="small", phase="train_step")
    rows = rows.head(2).assign(launch_us=5.0, host_reference=1.2, sustained_ms=100.0, marks="")
    rows["host_ms"], rows["sustained_rounds_ms"] = [95.0, 50.0], "98;100;112"
    identity = load("end_to_end").identity
    texts = rows.astype(object).where(rows.notna(), "").astype(str).to_dict("records")
    Evidence(tmp_path / "evidence/end_to_end.csv", identity, identity).replace(texts)
    frame = read_result(str(tmp_path)).frames["end_to_end"].set_index("host_ms")
    assert frame["marks"].fillna("").to_dict() == {95.0: "host", 50.0: ""}


def test_least_difference_that_counts_stands_beside_each_ratio(result):
    found = compare(result("old", rows_of_run(1, cells=9)), result("new", rows_of_run(2, cells=9)))
    floor = percent(found.rows["floor"].iloc[0])
    assert "counts from" in as_text(found) and as_text(found).count(f"  {floor}") == 9


def test_benchmarks_are_summed_up_before_the_rows(result, tmp_path):
    for name, seed, factor in (("old", 1, 1.0), ("new", 2, 1.25)):
        result(name, rows_of_run(seed, cells=20), read=False)
        others = rows_of_run(seed, factor, cells=10)
        Evidence(tmp_path / name / "evidence/other.csv", IDENTITY, IDENTITY).replace(others)
    found = compare(*(read_result(str(tmp_path / name)) for name in ("old", "new")))
    first, second = found.by_benchmark.to_dict("records")
    assert (first["benchmark"], first["rows"], second["benchmark"]) == ("other", 10, "topic")
    assert first["slower"] > 5 and first["low"] < 0.8 < first["high"]
    assert first["ratio"] == pytest.approx(0.8, rel=0.02)
    for form in (as_text, as_markdown):
        assert re.search(r"other[ |]+10[ |]+\d+", form(found))


@pytest.mark.slow
def test_markdown_is_short_enough_for_a_comment(result):
    old = result("old", rows_of_run(1, cells=2000))
    text = as_markdown(compare(old, result("new", rows_of_run(2, 1.1, cells=2000))))
    worst, folded = text.split("<details>")
    assert worst.count("\n| slower") == 20 and "further row" in folded
    assert len(text) < 65_536
    assert "<details>" not in as_markdown(compare(old, result("alike", rows_of_run(2, cells=10))))


def test_json_has_every_row_with_null_for_no_value(result):
    new = rows_of_run(2, cells=3)
    new[0]["status"] = "crash"
    found = json.loads(as_json(compare(result("old", rows_of_run(1, cells=3)), result("new", new))))
    assert found["regressions"] == found["counts"]["broken"] == 1 and found["at_least"] == 0.02
    broken, *others = found["rows"]
    assert broken["state_new"] == "crash" and broken["ratio"] is None
    for row in others:
        assert row["low"] <= row["ratio"] <= row["high"] and row["cycles"] is None
        assert row["axes"]["dtype"] == "float32" and row["rounds"] == ROUNDS


def test_identical_measurements_are_not_compared(result):
    same = result("same", rows_of_run(1, cells=3))
    found = compare(same, same)
    assert found.identical == 3 and found.rows.empty
    for form in (as_text, as_markdown, as_json):
        assert "3" in form(found)


def diff(capsys, *arguments):
    try:
        code = main(["diff", *arguments])
    except SystemExit as exit:  # argparse
        code = exit.code
    return code, *capsys.readouterr()


@pytest.mark.slow
def test_command_exits_with_1_on_a_regression(result, capsys):
    old, new = (
        result("old", rows_of_run(1), read=False),
        result("new", rows_of_run(2, 1.1), read=False),
    )
    code, out, _ = diff(capsys, old, new)
    assert code == 1 and re.match(r"Regressions beyond 2.0 %: \d+ found", out)
    code, out, _ = diff(capsys, new, old)
    assert code == 0 and out.startswith("Regressions beyond 2.0 %: none found\n")
    assert diff(capsys, old, new, "--at-least", "20")[0] == 0
    code, out, _ = diff(capsys, old, new, "--only", "seq_len=130,seq_len=131", "--format", "json")
    assert code == 1 and [row["axes"]["seq_len"] for row in json.loads(out)["rows"]] in (
        ["130", "131"],
        ["131", "130"],
    )


def test_bad_input_prints_one_line_and_exits_with_2(result, capsys, tmp_path):
    old = result("old", rows_of_run(1, cells=3), read=False)
    damaged = shutil.copytree(old, tmp_path / "damaged")
    with open(damaged / "evidence/topic.csv", "a") as file:
        file.write("edited\n")
    (tmp_path / "empty").mkdir()
    for arguments, why in (
        ((old, "nowhere"), "nowhere is neither a directory nor a machine"),
        ((old, str(tmp_path / "empty")), "no evidence: there is no"),
        ((old, str(damaged)), "topic.csv was edited or truncated"),
        ((old, "machine@no-such-revision"), "not committed there"),
        ((old, "machine@--output=x"), "is not a revision"),
        ((old, old, "--only", "colour=red"), "no axis colour; there are: dtype"),
        ((old, old, "--only", "dtype=red"), "share none of the requested rows"),
        ((old, old, "--benchmark", "nothing"), "no benchmark nothing in either; there are: topic"),
    ):
        code, out, error = diff(capsys, *arguments)
        assert code == 2 and not out and why in error and len(error.splitlines()) == 1
    for arguments in (("--only", "dtype"), ("--at-least", "0.1"), ("--at-least", "much")):
        assert diff(capsys, old, old, *arguments)[0] == 2


def test_committed_evidence_of_a_machine_can_be_compared(result, tmp_path, monkeypatch, capsys):
    def git(*arguments):
        identity = "-c", "user.name=n", "-c", "user.email=e@x"
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True)

    result("report/h200", rows_of_run(1), read=False)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    result("report/h200", rows_of_run(2, 1.1), read=False)
    monkeypatch.chdir(tmp_path)
    code, out, _ = diff(capsys, "h200@HEAD", "h200")
    assert code == 1 and "h200@HEAD -> h200: 300 rows compared" in out


def test_untrusted_text_is_inert_in_every_format(result):
    reason = "<script>|`x` \x1b[31m](javascript:x)"
    old, new = rows_of_run(1, cells=20), rows_of_run(2, cells=20)
    new[0] |= {"status": "crash", "reason": reason, "median_ms": None, "rounds_ms": None}
    found = compare(result("old", old), result("new", new))
    seen = "<script>|`x` ␛[31m](javascript:x)"
    assert seen in as_text(found)
    assert [row["reason_new"] for row in json.loads(as_json(found))["rows"]].count(seen) == 1
    text = as_markdown(found)
    assert not markdown.foreign_tags(text) and not markdown.targets(text)
    assert "\x1b" not in text and any(seen in block for block in markdown.shown(text))
