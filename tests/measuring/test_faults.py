"""A fault of one implementation is its row, and nothing else."""

import pytest
import toys
from processes_of_toys import is_alive, marked

from lmperf.gate import UNCHECKED

pytestmark = pytest.mark.process
SIZE = {"size": [8]}


def statuses(rows):
    return {name: {row["status"] for row in of} for name, of in rows.items()}


def test_python_faults_cost_one_case_each_and_no_process(measured):
    names = ["doubles", "raises", "asks_for_a_pebibyte", "is_wrong", "is_not_finite"]
    names += ["is_unsupported", "is_too_large_to_check", "also_doubles", "prints_a_lot"]
    names += ["leaves_a_daemon"]
    rows = measured(names, **SIZE)
    assert statuses(rows) == {
        "doubles": {"ok"},
        "raises": {"crash"},
        "asks_for_a_pebibyte": {"oom"},
        "is_wrong": {"failed_check"},
        "is_not_finite": {"nan"},
        "is_unsupported": {"unsupported"},
        "is_too_large_to_check": {"failed_check"},
        "also_doubles": {"ok"},
        "prints_a_lot": {"ok"},
        "leaves_a_daemon": {"ok"},
    }
    assert all(len(of) == 2 for of in rows.values())
    assert rows["raises"][0]["reason"].startswith(
        r"RuntimeError: no kernel für \ud800 \x1b[31m this size"
    ), "in one printable line"
    assert float(rows["asks_for_a_pebibyte"][0]["requested_bytes"]) == 2**50
    assert rows["is_too_large_to_check"][0]["reason"] == UNCHECKED
    assert float(rows["is_wrong"][0]["max_error"]) > float(rows["is_wrong"][0]["error_bound"])
    assert not is_alive(marked("daemon")), "it ends with its worker"
    for row in rows["doubles"]:
        assert float(row["low_ms"]) <= float(row["median_ms"]) <= float(row["high_ms"])
        assert 6 <= len(row["rounds_ms"].split(";")) <= 20 and row["max_error"] == 0


def test_a_worker_that_dies_or_hangs_costs_the_case_that_ran(measured, said):
    dies = {
        "segfaults": "was ended by SIGSEGV",
        "kills_its_keeper": "was ended by SIGKILL",
        "closes_its_files": "closed its connection",
    }
    hangs = ("stops_with_children", "prints_forever")
    rows = measured(["doubles", *dies, "is_killed_once", *hangs], toys.Short, **SIZE)
    expected = dict.fromkeys(("doubles", "is_killed_once"), "ok")
    expected |= dict.fromkeys(dies, "crash") | dict.fromkeys(hangs, "timeout")
    assert {name: of[0]["status"] for name, of in rows.items()} == expected
    assert all(words in rows[name][0]["reason"] for name, words in dies.items())
    assert all(rows[name][0]["reason"] == "no answer within 3 s" for name in hangs)
    assert sum("it is tried once more" in line for line in said) == len(dies) + 1
    assert sum("still here" in line for line in said) == 1
    assert not is_alive(marked("child")) and not is_alive(marked("daemon"))


def test_what_hangs_twice_is_skipped(measured):
    rows = measured(["hangs"], toys.Short)["hangs"]
    assert {row["status"] for row in rows} == {"timeout"}
    assert rows[2]["reason"].startswith("skipped")
    assert [row["size"] for row in rows] == [8, 16, 32]


def test_weights_that_one_implementation_poisons_are_put_back(measured):
    rows = measured(["first", "poisons", "poisons_later", "spoils", "last"], toys.Steps)
    assert statuses(rows) == {
        "first": {"ok"},
        "poisons": {"nan"},
        "poisons_later": {"crash"},
        "spoils": {"failed_check"},
        "last": {"ok"},
    }
    assert all(int(row["n"]) >= 6 for name in ("first", "last") for row in rows[name])
