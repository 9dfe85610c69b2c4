"""`lmperf repeat`: it measures rows a second time in new processes, and only those that are due."""

import csv

import pytest

pytestmark = pytest.mark.process


def second_rows(folder):
    with open(folder / "report/here/evidence/repeatability.csv") as file:
        return list(csv.DictReader(file))


def test_rows_are_measured_a_second_time_once(folder, lmperf):
    config = folder / "config/config.yaml"
    config.write_text(config.read_text().replace("[eager, sdpa]", "[eager]"))
    assert lmperf("measure", "flash_attention")[0] == 0
    code, out, _ = lmperf("repeat", "--log", "repeat.log")
    assert code == 0 and out.strip() == "report/here/evidence/repeatability.csv"
    rows = second_rows(folder)
    assert {row["phase"] for row in rows} == {"forward", "backward", "forward_backward"}
    assert {(row["benchmark"], row["status"]) for row in rows} == {("flash_attention", "ok")}
    first = {(row["phase"], row["key"]): row for row in first_rows(folder)}
    for row in rows:
        one = first[row["phase"], row["key"]]
        assert one["environment"] == row["environment"]
        assert one["together"] != row["together"] and one["rounds_ms"] != row["rounds_ms"]
    assert lmperf("repeat")[0] == 0 and second_rows(folder) == rows
    assert "3 of 3 rows: " in (folder / "repeat.log").read_text()
    assert "\nrepeatability," in (folder / "report/here/evidence/cost.csv").read_text()


def first_rows(folder):
    with open(folder / "report/here/evidence/flash_attention.csv") as file:
        return list(csv.DictReader(file))


def test_repeat_without_a_timed_benchmark_is_one_line(folder, lmperf):
    assert lmperf("repeat", "--config", "benchmarks=[memory]") == (
        2,
        "",
        "lmperf: the configuration has no timed benchmark; there is nothing to repeat\n",
    )


def test_list_names_second_rows_of_full_runs_only(folder, lmperf):
    assert "repeatability" not in lmperf("list")[1]
    said = lmperf("list", "--due", "--config", "benchmarks=all")[1].splitlines()
    place = said.index("repeatability: 24 of 24 rows to measure a second time (24 missing)")
    assert len(said) == place + 25 and said[-1].endswith(": missing")
