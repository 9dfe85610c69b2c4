"""A fault of one implementation is its row, and nothing else."""

import pickle
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import toys
import triton

from lmperf.gate import UNCHECKED
from lmperf.measuring import supervisor
from lmperf.measuring.failures import failure_row
from lmperf.measuring.interpreter import CHECKED, NEEDS_GPU
from lmperf.measuring.isolation import Worlds
from lmperf.measuring.process import Lost
from lmperf.measuring.sensors import MOST_LOAD

pytestmark = pytest.mark.process
SIZE = {"size": [8]}


def statuses(rows):
    return {name: {row["status"] for row in of} for name, of in rows.items()}


def test_faults_in_python_cost_one_case_each_and_no_process(measured, said):
    names = ["doubles", "raises", "asks_for_a_pebibyte", "is_wrong", "is_not_finite"]
    names += ["is_unsupported", "is_too_large_to_check", "also_doubles"]
    names += ["leaves", "interrupts", "is_strange", "forks_and_leaves", "prints_a_lot", "warns"]
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
        "leaves": {"crash"},
        "interrupts": {"crash"},
        "is_strange": {"crash"},
        "forks_and_leaves": {"ok"},
        "prints_a_lot": {"ok"},
        "warns": {"ok"},
    }
    assert all(len(of) == 2 for of in rows.values())
    reasons = {name: of[0].get("reason", "") for name, of in rows.items()}
    assert reasons["raises"].startswith(r"RuntimeError: no kernel für \ud800 \x1b[31m this size"), (
        "in one printable line"
    )
    assert float(rows["asks_for_a_pebibyte"][0]["requested_bytes"]) == 2**50
    assert reasons["is_too_large_to_check"] == UNCHECKED
    assert float(rows["is_wrong"][0]["max_error"]) > float(rows["is_wrong"][0]["error_bound"])
    for row in rows["doubles"]:
        assert float(row["low_ms"]) <= float(row["median_ms"]) <= float(row["high_ms"])
        assert 6 <= len(row["rounds_ms"].split(";")) <= 20
        assert row["max_error"] == row["error_out"] == 0
        assert row["peak_mib"] > 0
    assert not any("peak_mib" in row for row in rows["also_doubles"]), "it is impossible"
    assert any("also_doubles is left out: only" in line for line in said)
    assert reasons["leaves"].startswith("SystemExit: 0 (") and "toys.py:" in reasons["leaves"]
    assert reasons["interrupts"].startswith("KeyboardInterrupt (")
    assert reasons["is_strange"].startswith("Strange: its message cannot be read (")
    assert not any("tried once more" in line for line in said)
    passed_on = " ".join(line for line in said if "the worker writes" in line)
    assert "of the user's own" in passed_on
    for hidden in ("Profiler", "cuBLAS", "USDT"):
        assert hidden not in passed_on, "of PyTorch about itself"
    (line,) = [line for line in said if "KeyboardInterrupt" in line]
    assert "raise KeyboardInterrupt" in Path(line.partition("traceback: ")[2]).read_text()


@pytest.fixture
def workers(monkeypatch):
    """Return a function that replaces the workers by lists of the messages that they send.

    `Lost` ends a worker, and None is no message in time. The function returns the jobs that the
    workers get, as far as they have been started.
    """

    def replace(*messages_of_each):
        jobs, messages_left = [], iter(messages_of_each)

        def worker(job, *_, **__):
            jobs.append(pickle.loads(job))
            messages = iter(next(messages_left))

            def receive(_):
                message = next(messages)
                if isinstance(message, Lost):
                    raise message
                return message

            return nullcontext(SimpleNamespace(receive=receive))

        monkeypatch.setattr(supervisor, "Process", worker)
        return jobs

    return replace


def step(case):
    """The message of a worker before a step of a case of its group."""
    return {"step": "timing", "case": case, "phase": "forward", "lasts_s": 0.0}


def right(case):
    """The message with the right row of a case of its group."""
    return {"rows": [{"status": "ok"}], "case": case, "phase": "forward"}


def names_of(done):
    return {(case.implementation, case.axes["size"]) for case, _ in done}


DONE = {"done": True}


def test_worker_that_dies_in_the_first_check_is_tried_once_more(measured, said, workers):
    dies = Lost("the process was ended by SIGSEGV")
    jobs = workers([step(1), dies], [step(1), dies], [step(0), dies], [step(0), DONE])
    rows = measured(["doubles", "raises"], toys.Short, checks_first=True, size=[8, 16])
    (row,) = rows.pop("raises")
    assert row["status"] == "crash" and "was ended by SIGSEGV" in row["reason"]
    assert row["size"] == 8 and not rows, "after a failed first check nothing is measured"
    assert sum("it is tried once more" in line for line in said) == 2
    assert [names_of(job.done) for job in jobs] == [set(), set(), *[{("raises", 8)}] * 2]


def test_wrong_result_in_the_first_check_ends_the_measurement(measured, workers):
    failed = {"rows": [{"status": "failed_check"}], "case": 0, "phase": "forward"}
    workers([failed, DONE])
    (row,) = measured(["is_wrong"], toys.Short, checks_first=True, size=[8, 16])["is_wrong"]
    assert row["size"] == 8, "though its worker goes on"


def test_first_group_that_is_only_checked_has_no_rows(measured, workers):
    jobs = workers([DONE, right(0), DONE])
    rows = measured(["doubles"], checks_first=True, size=[8, 16])
    assert [row["size"] for row in rows["doubles"]] == [16] and jobs[0].checks_first


def test_implementation_that_hangs_twice_is_skipped(measured, monkeypatch, workers):
    monkeypatch.setattr(toys.Short, "limit_s", 0.0)
    hangs = step(0), None
    jobs = workers([*hangs], [right(1), DONE, *hangs], [right(1), DONE, right(1), DONE])
    rows = measured(["doubles", "raises"], toys.Short)
    assert [row["status"] for row in rows["raises"]] == ["ok"] * 3
    assert [row["status"] for row in rows["doubles"]] == ["timeout"] * 3
    first, _, last = (row["reason"] for row in rows["doubles"])
    assert first == "no answer within 0 s" and last.startswith("skipped")
    assert names_of(jobs[-1].done) == {("doubles", 16), ("doubles", 32)}


def test_implementation_that_changes_what_stays_is_measured_apart(measured, said, workers):
    changes = step(1), {"changed": "operators of PyTorch"}
    jobs = workers([*changes], [right(0), DONE], [right(0), DONE])
    rows = measured(["doubles", "raises"], toys.Short, **SIZE)
    assert statuses(rows) == {"doubles": {"ok"}, "raises": {"ok"}}
    names = [[case.implementation for group in job.groups for case in group] for job in jobs]
    assert names == [["doubles", "raises"], ["doubles"], ["raises"]]
    assert [job.apart for job in jobs] == [False, False, True]
    words = "raises changes operators of PyTorch; it is measured in a process of its own"
    assert [line for line in said if "process of its own" in line] == [f"[toy] {words}"]


def test_rows_of_a_process_of_its_own_have_a_mark(measured_here):
    (row,) = measured_here(["first"], toys.FewSteps, Worlds(apart=True))["first"]
    assert "process" in row["marks"].split(";")


def test_each_implementation_is_measured_as_if_it_were_alone(measured, said, tried):
    """On a CPU whose wide vectors are wrong, which rows of code that may be compiled say."""
    tried(0.74)
    external = {"patches": "patches_on_import:doubles", "sees": "toys:sees_torch"}
    kernels = {name: f"toys:{name}" for name in ("runs_a_kernel", "runs_a_wrong_kernel")}
    names = ["doubles", *external, *kernels]
    rows = measured(names, toys.Short, external=external | kernels, **SIZE)
    of_kernels = {name: rows.pop(name) for name in kernels}
    assert statuses(rows) == {name: {"ok"} for name in ("doubles", *external)}
    assert {len(of) for of in rows.values()} == {1}
    bits = {name: row.get("vector_bits") for name, (row,) in rows.items()}
    assert bits == {"doubles": None, "patches": 256, "sees": 256}
    assert sum("vectors of 256 bits" in line for line in said) == 1
    assert len({row["together"] for of in rows.values() for row in of}) == 1
    if torch.cuda.is_available():
        return  # Triton compiles for the GPU
    wrong = {"failed_check"}
    assert statuses(of_kernels) == dict(zip(kernels, ({"unsupported"}, wrong), strict=True))
    row = of_kernels["runs_a_kernel"][0]
    assert row["reason"] == CHECKED and "max_error" in row and "median_ms" not in row


@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles for the GPU")
def test_kernel_that_finds_no_gpu_says_what_it_needs():
    with pytest.raises(RuntimeError) as error:
        triton.runtime.driver.active.get_current_device()
    assert failure_row(error.value) == {"status": "unsupported", "reason": NEEDS_GPU}


def test_observed_times_have_the_load_of_others(measured_here):
    rows = measured_here(["right"], toys.Seen)["right"]
    assert [row["took_ms"] for row in rows] == [1.0, 2.0]
    for row in rows:
        assert 0 <= row["other_load"] <= 1
        assert (row.get("marks") == "loaded") == (row["other_load"] > MOST_LOAD)


def test_weights_that_one_implementation_poisons_are_put_back(measured_here):
    names = ["first", "poisons", "poisons_later", "spoils", "last"]
    rows = measured_here(names, toys.FewSteps)
    assert statuses(rows) == {
        "first": {"ok"},
        "poisons": {"nan"},
        "poisons_later": {"crash"},
        "spoils": {"failed_check"},
        "last": {"ok"},
    }
    assert {row["n"] for name in ("first", "last") for row in rows[name]} == {10}
