"""A fault of one implementation is its row, and nothing else."""

from pathlib import Path

import pytest
import torch
import toys

from lmperf.gate import UNCHECKED
from lmperf.measuring.interpreter import CHECKED, NEEDS_GPU
from lmperf.measuring.sensors import MOST_LOAD

pytestmark = pytest.mark.process
SIZE = {"size": [8]}


def statuses(rows):
    return {name: {row["status"] for row in of} for name, of in rows.items()}


def test_python_faults_cost_one_case_each_and_no_process(measured, said):
    names = ["doubles", "raises", "asks_for_a_pebibyte", "is_wrong", "is_not_finite"]
    names += ["is_unsupported", "is_too_large_to_check", "also_doubles", "prints_a_lot"]
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
    }
    assert all(len(of) == 2 for of in rows.values())
    assert rows["raises"][0]["reason"].startswith(
        r"RuntimeError: no kernel für \ud800 \x1b[31m this size"
    ), "in one printable line"
    assert float(rows["asks_for_a_pebibyte"][0]["requested_bytes"]) == 2**50
    assert rows["is_too_large_to_check"][0]["reason"] == UNCHECKED
    assert float(rows["is_wrong"][0]["max_error"]) > float(rows["is_wrong"][0]["error_bound"])
    for row in rows["doubles"]:
        assert float(row["low_ms"]) <= float(row["median_ms"]) <= float(row["high_ms"])
        assert 6 <= len(row["rounds_ms"].split(";")) <= 20
        assert row["max_error"] == row["error_out"] == 0
        assert row["peak_mib"] > 0
    assert not any("peak_mib" in row for row in rows["also_doubles"]), "it is impossible"
    assert any("also_doubles is left out: only" in line for line in said)


def test_whatever_a_call_raises_costs_one_case_and_no_process(measured, said, monkeypatch, marks):
    names = ["doubles", "leaves", "interrupts", "is_strange", "forks_and_leaves"]
    rows = measured(names, toys.Short, **SIZE)
    reasons = {name: rows[name][0].get("reason", "ok").partition(" (")[0] for name in names}
    assert reasons == {
        "doubles": "ok",
        "leaves": "SystemExit: 0",
        "interrupts": "KeyboardInterrupt",
        "is_strange": "Strange: its message cannot be read",
        "forks_and_leaves": "ok",
    }
    assert "toys.py:" in rows["leaves"][0]["reason"]
    assert not any("tried once more" in line or "the worker writes" in line for line in said)
    (line,) = [line for line in said if "KeyboardInterrupt" in line]
    assert "raise KeyboardInterrupt" in Path(line.partition("traceback: ")[2]).read_text()


def test_a_worker_that_dies_is_tried_once_more(measured, said):
    rows = measured(["doubles", "segfaults", "is_killed_once"], toys.Short, **SIZE)
    assert {name: of[0]["status"] for name, of in rows.items()} == {
        "doubles": "ok",
        "segfaults": "crash",
        "is_killed_once": "ok",
    }
    assert "was ended by SIGSEGV" in rows["segfaults"][0]["reason"]
    assert sum("it is tried once more" in line for line in said) == 2


@pytest.mark.parametrize("fault", ["is_wrong", "segfaults"])
def test_nothing_is_measured_after_a_failed_first_check(measured, fault):
    rows = measured([fault], checks_first=True, size=[8, 16])
    assert {row["size"] for row in rows[fault]} == {8}
    assert not any("median_ms" in row for row in rows[fault])


def test_warnings_of_pytorch_about_itself_are_not_passed_on(measured, said):
    assert statuses(measured(["warns"], **SIZE)) == {"warns": {"ok"}}
    passed_on = " ".join(line for line in said if "the worker writes" in line)
    assert "of the user's own" in passed_on
    assert "Profiler" not in passed_on and "cuBLAS" not in passed_on


def test_first_group_that_is_only_checked_has_no_rows(measured):
    rows = measured(["doubles", "also_doubles"], checks_first=True, size=[8, 16])
    assert statuses(rows) == {"doubles": {"ok"}, "also_doubles": {"ok"}}
    assert {row["size"] for of in rows.values() for row in of} == {16}


def test_what_hangs_twice_is_skipped(measured, monkeypatch):
    monkeypatch.setattr(toys.Short, "limit_s", 0.5)  # enough: nothing here is to be in time
    rows = measured(["stops"], toys.Short)["stops"]
    assert [row["size"] for row in rows] == [8, 16, 32]
    assert [row["status"] for row in rows] == ["timeout"] * 3
    assert rows[0]["reason"] == "no answer within 0.5 s" and rows[2]["reason"].startswith("skipped")


def test_a_worker_that_is_ended_begins_no_other_case(measured, tmp_path):
    rows = measured(["waits", "names_its_process"], toys.Short, **SIZE)
    assert statuses(rows) == {"waits": {"timeout"}, "names_its_process": {"ok"}}
    ended = (tmp_path / "waits").read_text()
    assert ended not in (tmp_path / "processes").read_text().split()


def test_each_implementation_is_measured_as_if_it_were_alone(measured, said):
    external = {
        "patches": "patches_on_import:doubles",
        "overrides": "toys:overrides_an_operator",
        "sees": "toys:sees_torch",
    }
    rows = measured(["doubles", *external], external=external, **SIZE)
    assert statuses(rows) == {name: {"ok"} for name in ("doubles", *external)}
    marked = {name for name, of in rows.items() for row in of if "process" in row["marks"]}
    assert marked == {"overrides"} and {len(of) for of in rows.values()} == {2}
    assert len({row["together"] for name in ("patches", "sees") for row in rows[name]}) == 2
    words = "overrides changes operators of PyTorch; it is measured in a process of its own"
    assert [line for line in said if "process of its own" in line] == [f"[toy] {words}"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles for the GPU")
@pytest.mark.parametrize("interpreted", ["0", "1"])
def test_triton_kernel_without_a_gpu_is_checked_and_not_timed(measured, monkeypatch, interpreted):
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    names = ["runs_a_kernel", "runs_a_wrong_kernel", "doubles"]
    external = {name: f"toys:{name}" for name in names[:2]}
    rows = measured(names, external=external, **SIZE)
    is_interpreted = interpreted == "1"
    wrong = "failed_check" if is_interpreted else "unsupported"
    expected = {"runs_a_kernel": {"unsupported"}, "runs_a_wrong_kernel": {wrong}, "doubles": {"ok"}}
    assert statuses(rows) == expected
    row = rows["runs_a_kernel"][0]
    assert row["reason"] == (CHECKED if is_interpreted else NEEDS_GPU)
    assert ("max_error" in row) == is_interpreted and "median_ms" not in row


def test_observed_times_have_the_load_of_others(measured):
    rows = measured(["right"], toys.Seen)["right"]
    assert [row["took_ms"] for row in rows] == [1.0, 2.0]
    for row in rows:
        assert 0 <= row["other_load"] <= 1
        assert (row.get("marks") == "loaded") == (row["other_load"] > MOST_LOAD)


def test_weights_that_one_implementation_poisons_are_put_back(measured):
    rows = measured(["first", "poisons", "poisons_later", "spoils", "last"], toys.FewSteps)
    assert statuses(rows) == {
        "first": {"ok"},
        "poisons": {"nan"},
        "poisons_later": {"crash"},
        "spoils": {"failed_check"},
        "last": {"ok"},
    }
    assert {row["n"] for name in ("first", "last") for row in rows[name]} == {10}
