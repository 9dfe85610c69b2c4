"""A fault of one implementation is its row, and nothing else."""

import toys
from processes_of_toys import is_alive, marked

SIZE = {"size": [8]}


def statuses(rows):
    return {name: {row["status"] for row in of} for name, of in rows.items()}


def test_python_faults_cost_one_case_each_and_no_process(measured):
    names = ["doubles", "raises", "asks_for_a_pebibyte", "is_wrong", "is_not_finite"]
    names += ["is_unsupported", "also_doubles", "prints_a_lot"]
    rows = measured(names, **SIZE)
    assert statuses(rows) == {
        "doubles": {"ok"},
        "raises": {"crash"},
        "asks_for_a_pebibyte": {"oom"},
        "is_wrong": {"failed_check"},
        "is_not_finite": {"nan"},
        "is_unsupported": {"unsupported"},
        "also_doubles": {"ok"},
        "prints_a_lot": {"ok"},
    }
    assert all(len(of) == 2 for of in rows.values())
    assert rows["raises"][0]["reason"].startswith("RuntimeError: no kernel für")
    assert float(rows["asks_for_a_pebibyte"][0]["requested_bytes"]) == 2**50
    assert float(rows["is_wrong"][0]["max_error"]) > float(rows["is_wrong"][0]["error_bound"])
    for row in rows["doubles"]:
        assert float(row["low_ms"]) <= float(row["median_ms"]) <= float(row["high_ms"])
        assert 6 <= len(row["rounds_ms"].split(";")) <= 20 and row["max_error"] == 0


def test_a_worker_that_dies_costs_the_case_that_ran(measured, said):
    why = {
        "exits": "ended with exit code 3",
        "segfaults": "was ended by SIGSEGV",
        "kills_its_keeper": "was ended by SIGKILL",
        "closes_its_files": "closed its connection",
    }
    rows = measured(["doubles", *why], toys.Short, **SIZE)
    assert statuses(rows) == {"doubles": {"ok"}} | {name: {"crash"} for name in why}
    assert all(words in rows[name][0]["reason"] for name, words in why.items())
    assert sum("it is tried once more" in line for line in said) == len(why)


def test_a_worker_that_was_killed_once_costs_nothing(measured):
    assert statuses(measured(["doubles", "is_killed_once"], toys.Short, **SIZE)) == {
        "doubles": {"ok"},
        "is_killed_once": {"ok"},
    }


def test_a_hang_ends_with_all_that_it_started(measured):
    rows = measured(["hangs_with_children", "doubles"], toys.Short, **SIZE)
    assert statuses(rows) == {"hangs_with_children": {"timeout"}, "doubles": {"ok"}}
    assert rows["hangs_with_children"][0]["reason"] == "no answer within 3 s"
    for mark in ("child", "daemon"):
        assert not is_alive(marked(mark))


def test_a_hang_that_prints_is_found(measured, said):
    assert statuses(measured(["prints_forever"], toys.Short, **SIZE)) == {
        "prints_forever": {"timeout"}
    }
    assert sum("still here" in line for line in said) == 1


def test_what_hangs_twice_is_skipped(measured):
    rows = measured(["hangs", "doubles"], toys.Short)
    assert statuses(rows) == {"hangs": {"timeout"}, "doubles": {"ok"}}
    assert rows["hangs"][2]["reason"].startswith("skipped")
    assert [row["size"] for row in rows["hangs"]] == [8, 16, 32]


def test_an_escaped_grandchild_ends_with_its_worker(measured):
    assert statuses(measured(["leaves_a_daemon"], toys.Short, **SIZE)) == {
        "leaves_a_daemon": {"ok"}
    }
    assert not is_alive(marked("daemon"))


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
