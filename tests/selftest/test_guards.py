"""Each guard catches its planted fault; without the guard, the fault is timed."""

import gc
import importlib
import threading
import time

import pytest
import torch

from lmperf.attention import problem
from lmperf.attention.inputs import FreshInputs
from lmperf.benchmark import Case
from lmperf.benchmarks import load
from lmperf.gate import Gate
from lmperf.measuring import clock, guards, rounds
from lmperf.measuring.group import Group
from lmperf.measuring.ranks import Alone
from lmperf.measuring.supervisor import seed_of
from lmperf.selftest.cases import CASES
from lmperf.selftest.expectations import STEM, Withheld

pytestmark = pytest.mark.slow

CELL = {"batch": 1, "heads": 2, "seq_len": 128, "d_head": 16, "dtype": "float32"}
CELL |= {"causal": True, "cuda_graph": False}
# Long enough that the result is copied before the thread has filled it.
LONGER = {"in_thread": {"heads": 8, "seq_len": 512}}
# Long enough that the first tile holds none of the keys with large scores.
LONGER["maximum_of_the_first_tile"] = {"seq_len": 256}
SLICES = 4
BY_NAME = {case.name: case for case in CASES}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Exclude imported modules from garbage collection and use a single thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def every_slice(monkeypatch):
    """Check each slice, and let no busy thread of an earlier test end this process."""
    monkeypatch.setattr(rounds, "LOOKS", range(100))
    monkeypatch.setattr(guards, "_BUSY_SHARE", float("inf"))


def fates(name):
    """Phase -> reason why a planted implementation is withheld; None where it is timed."""
    case = BY_NAME[name]
    importlib.reload(importlib.import_module(case.reference.partition(":")[0]))
    benchmark = load(STEM, {name: case.reference})
    planted = Case(tuple({**CELL, **LONGER.get(name, {})}.items()), name)
    found = {}

    def tell(rows=(), phase=None, **_):
        for row in rows:
            found[phase] = row["reason"]

    seed = seed_of(benchmark, [planted])
    group = Group(benchmark, [planted], (), (), "cpu", seed, Alone(), tell)
    group.prepare(planted)
    for phase in list(group.ready(planted)):
        found[phase] = None
        for _ in range(SLICES):
            time.sleep(0.005)  # the pause between two slices of a case
            if group.slice(phase, planted, 8) is None:
                break
    return found


def caught(name):
    """Whether the implementation is withheld in the expected phases for an expected reason."""
    expect, found = BY_NAME[name].expect, fates(name)
    phases = expect.phases or tuple(found)
    return all(
        found[phase] and any(reason in found[phase] for reason in expect.reasons)
        for phase in phases
    )


def timed_after_all(name):
    """Whether the implementation is timed in a phase in which it must be withheld."""
    expect, found = BY_NAME[name].expect, fates(name)
    return any(found[phase] is None for phase in expect.phases or tuple(found))


def no_large_scores(patch):
    patch.setattr(problem.AttentionProblem, "_require_large_scores", lambda *_: None)


def no_fresh_inputs(patch):
    draw = FreshInputs.freshen

    def once(fresh, seed, large_scores=False):
        if not hasattr(fresh, "_seed"):
            draw(fresh, seed)
        fresh._gradients = 0

    no_large_scores(patch)
    patch.setattr(
        clock.Clock, "fresh", lambda _, work, name: (work.phases[name], work.phases[name].before())
    )
    patch.setattr(FreshInputs, "freshen", once)


def the_same_gradients(patch):
    no_fresh_inputs(patch)
    patch.setattr(FreshInputs, "freshen_gradient", lambda *_: None)


def no_other_gradient_after_forward(patch):
    no_large_scores(patch)
    patch.setattr(FreshInputs, "freshen_gradient", lambda *_: None)


def no_look_at_timed_calls(patch):
    no_large_scores(patch)
    patch.setattr(guards, "require", lambda *_: None)


def no_gate(patch):
    patch.setattr(Gate, "columns", {"status": "ok"})
    patch.setattr(Gate, "passed", True)


def any_type(patch):
    def copied(result):
        tensors = result if isinstance(result, tuple) else (result,)
        copies = tuple((tensor + 0).detach() for tensor in tensors)
        return copies if isinstance(result, tuple) else copies[0]

    def taken(result, like):
        return {name: (got + 0).detach() for name, got in zip(like, result, strict=True)}

    patch.setattr(guards, "_snapshot", copied)
    patch.setattr(problem, "tensors_of", taken)


def inputs_unlooked_at(patch):
    no_look_at_timed_calls(patch)  # it would find a result of changed inputs wrong
    patch.setattr(problem, "require_unchanged", lambda names: None)
    # The gate runs after the first calls and would see the inputs that they changed.
    patch.setattr(Gate, "columns", {"status": "ok"})


def growth_is_fine(patch):
    patch.setattr(guards.Guard, "_refuse_growth", lambda *_: None)


def results_copied_late(patch):
    growth_is_fine(patch)  # the memory of a thread is alive after the call
    snapshot, results = guards._snapshot, problem.AttentionProblem._results

    def late(do):
        def later(*arguments):
            for thread in threading.enumerate():
                if "fill" in thread.name:
                    thread.join()
            return do(*arguments)

        return later

    patch.setattr(guards, "_snapshot", late(snapshot))
    patch.setattr(problem.AttentionProblem, "_results", late(results))


WITHOUT = {
    "by_address": no_fresh_inputs,
    "by_shape": no_fresh_inputs,
    "after_twenty_calls": no_look_at_timed_calls,
    "for_the_seed": no_look_at_timed_calls,
    "turned": no_look_at_timed_calls,
    "gradients_by_address": the_same_gradients,
    "early_backward": no_other_gradient_after_forward,
    "lazy": any_type,
    "in_thread": results_copied_late,
    "zeros": no_gate,
    "mask_dropped_in_one_head": no_gate,
    "scale_of_the_last_block": no_gate,
    "nan_at_one_position": no_gate,
    "in_another_dtype": no_gate,
    "key_tile_dropped": no_gate,
    "in_float64": any_type,
    "changes_its_inputs": inputs_unlooked_at,
    "leaks": growth_is_fine,
    "leaks_now_and_then": growth_is_fine,
    "softmax_without_maximum": no_large_scores,
    "maximum_of_the_first_tile": no_large_scores,
    "idle_at_the_start": no_look_at_timed_calls,
}
# It needs a device.
ELSEWHERE = {"on_stream"}


def test_every_withheld_case_is_listed():
    kernels = (case for case in CASES if case.module != "reductions")
    withheld = {case.name for case in kernels if isinstance(case.expect, Withheld)}
    assert withheld == {*WITHOUT, *ELSEWHERE}


@pytest.mark.parametrize("name", WITHOUT)
def test_guard_withholds_its_case(name):
    assert caught(name)


@pytest.mark.parametrize("name", WITHOUT)
def test_case_is_timed_without_its_guard(name, monkeypatch):
    WITHOUT[name](monkeypatch)
    assert timed_after_all(name)
