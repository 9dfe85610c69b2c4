"""Tests of steps timed back to back, on a toy benchmark, and of the plan of their number."""

import time
from dataclasses import replace

import pytest
from toy import Toy

from lmperf.measuring import group, sustained
from lmperf.measuring.prepared import Prepared
from lmperf.measuring.process import WorkerLost
from lmperf.measuring.readings import Reading, References
from lmperf.measuring.rounds import Pace
from lmperf.measuring.state import State, Watch
from lmperf.measuring.stopwatch import STEPS
from lmperf.measuring.supervisor import Supervisor
from lmperf.measuring.sustained import (
    BLOCKS,
    FEWEST_STEPS,
    LEAD_STEPS,
    LEAST_STEPS,
    Stretch,
    lead_steps,
    stretch_fault,
    stretch_steps,
)
from lmperf.measuring.workers import PROJECT, Workers

SUSTAINED = {name for name in Stretch([1.0], State()).columns()}


@pytest.mark.parametrize(
    ("step_ms", "lead", "steps"),
    [
        (10.0, 150, 550),  # 1.5 s, and 5.5 s
        (1000.0, LEAD_STEPS, LEAST_STEPS),
        (5000.0, LEAD_STEPS, 12),  # a minute
        (40_000.0, LEAD_STEPS, FEWEST_STEPS),
    ],
)
def test_stretch_lasts_long_enough_but_not_for_ever(step_ms, lead, steps):
    assert (lead_steps(step_ms), stretch_steps(step_ms)) == (lead, steps)


def test_sustained_time_is_the_median_over_blocks():
    columns = Stretch([1.0] * 50 + [3.0] * 40 + [99.0] * 10, State(1500.0, 690.0)).columns()
    assert columns["sustained_ms"] == 2.0
    assert columns["sustained_rounds_ms"].split(";") == ["1.0"] * 5 + ["3.0"] * 4 + ["99.0"]
    assert (columns["sustained_steps"], columns["sustained_s"]) == (100, pytest.approx(1.16))
    assert (columns["sustained_mhz"], columns["sustained_w"]) == (1500.0, 690.0)


def test_few_steps_are_a_block_each():
    assert Stretch([1.0, 2.0, 4.0], State()).columns()["sustained_rounds_ms"] == "1.0;2.0;4.0"


@pytest.mark.parametrize(
    ("here_ms", "agrees"), [(5000.0, True), (5150.0, True), (5300.0, False), (4800.0, False)]
)
def test_stretch_must_last_as_long_by_the_supervisors_clock(here_ms, agrees):
    assert (stretch_fault([50.0] * 100, here_ms) is None) is agrees


def test_nobody_can_know_how_long_the_stretch_is():
    benchmark = Toy("toy")
    (case, _) = benchmark.cases("cpu")
    worker = Prepared(benchmark, [case], (), "cpu", 1, lambda *_: None)
    worker.prepare()
    lengths = {len(worker.sustain(case, "forward", 20)["times"]) for _ in range(50)}
    assert min(lengths) > 20 and len(lengths) > 2
    assert worker.check_last(case, "forward")


class Slow(Toy):
    """The toy benchmark with a preparation of each call that takes PREPARING_MS."""

    PREPARING_MS = 30.0

    def prepare(self, *arguments):
        made = super().prepare(*arguments)
        (phase,) = made.phases.values()
        waiting = replace(phase, before=lambda: time.sleep(self.PREPARING_MS / 1e3))
        return replace(made, phases={"forward": waiting})


@pytest.mark.slow
@pytest.mark.parametrize("clock", ["step", "kernel"])
def test_row_of_a_kernel_shows_its_call_alone(clock):
    benchmark = Slow("toy")
    benchmark.clock = clock
    (case, _) = benchmark.cases("cpu")
    worker = Prepared(benchmark, [case], (), "cpu", 1, lambda *_: None)
    worker.prepare()
    found = worker.sustain(case, "forward", 3)
    assert min(found["times"]) >= Slow.PREPARING_MS
    assert (max(found["calls"]) < Slow.PREPARING_MS) is (clock == "kernel")


@pytest.fixture(scope="module")
def shared():
    with Supervisor("cpu") as supervisor:
        yield supervisor


@pytest.fixture
def supervisor(shared, monkeypatch):
    """A supervisor whose stretches last for 0.05 s."""
    monkeypatch.setattr(group, "pace_of", lambda *_: Pace(1, 1, 0.05))
    monkeypatch.setattr(sustained, "LEAD_S", 0.01)
    monkeypatch.setattr(sustained, "LEAST_S", 0.05)
    monkeypatch.setattr(sustained, "_CLOCKS_MS", 1000.0)  # beside other load
    monkeypatch.setattr(group, "MOST_TAKES", 1)
    monkeypatch.setattr(Workers, "reading", lambda *_: Reading(1.0, 1.0, None, 1.0))
    monkeypatch.setattr(shared.history, "references", References("cpu", {}))
    return shared


def rows_of(supervisor, *names):
    benchmark = Toy("toy")
    cases = benchmark.cases("cpu", {"implementation": list(names)})
    return {row["implementation"]: row for row in supervisor.measure(benchmark, cases, seed=1)}


@pytest.mark.process
def test_chosen_steps_are_also_timed_back_to_back(supervisor):
    rows = rows_of(supervisor, "right", "other")
    right = rows["right"]
    assert {row["status"] for row in rows.values()} == {"ok"}
    assert right["sustained_s"] >= 0.05 and right["sustained_steps"] > LEAST_STEPS
    blocks = [float(block) for block in right["sustained_rounds_ms"].split(";")]
    assert len(blocks) == BLOCKS and min(blocks) <= right["sustained_ms"] <= max(blocks)
    assert not SUSTAINED & {name for name, value in rows["other"].items() if value is not None}
    assert right["again_ms"], "its twin was timed in the rounds"


@pytest.mark.process
def test_cost_of_a_job_tells_sustained_steps_from_rounds(supervisor, monkeypatch):
    steps = []
    monkeypatch.setattr(supervisor.workers, "on_step", lambda words, *_: steps.append(words))
    rows_of(supervisor, "right")
    assert {STEPS.get(words) for words in steps} >= {"timing_s", "sustained_s"}
    first = steps.index("back to back")
    assert "timing" in steps[:first] and {*steps[first : first + 3]} == {"back to back"}


@pytest.mark.process
def test_twins_are_not_timed_back_to_back(supervisor, monkeypatch):
    asked, ask = [], Workers.ask

    def noted(self, name, *request, **more):
        asked.append((name, request[0]))
        return ask(self, name, *request, **more)

    monkeypatch.setattr(Workers, "ask", noted)
    rows_of(supervisor, "right")
    assert {name for name, request in asked if request == "sustain"} == {PROJECT}
    assert len({name for name, request in asked if request == "slice"}) == 2


@pytest.mark.process
def test_implementation_wrong_only_in_long_runs_is_withheld(supervisor):
    rows = rows_of(supervisor, "right", "wrong_later")
    assert rows["right"]["status"] == "ok"
    row = rows["wrong_later"]
    assert row["status"] == "failed_check" and "returned a wrong out" in row["reason"]
    assert "median_ms" not in row


@pytest.mark.process
@pytest.mark.parametrize("share", [0.8, 1.3])
def test_stretch_of_a_wrong_clock_is_withheld(supervisor, monkeypatch, share):
    ask = Workers.ask

    def scaled(self, name, *request, **more):
        found = ask(self, name, *request, **more)
        if request[0] != "sustain":
            return found
        return {name: [share * ms for ms in times] for name, times in found.items()}

    monkeypatch.setattr(Workers, "ask", scaled)
    monkeypatch.setattr(sustained, "LEAST_S", 0.5)
    monkeypatch.setattr(sustained, "_CLOCKS_MS", 10.0)
    row = rows_of(supervisor, "right")["right"]
    assert row["status"] == "failed_check" and "its clock is wrong" in row["reason"]


@pytest.mark.process
def test_worker_lost_in_the_stretch_repeats_the_phase(supervisor, monkeypatch):
    lost, ask = [], Workers.ask

    def losing(self, name, *request, **more):
        if request[0] == "sustain" and not lost:
            lost.append(name)
            self.end(name)
            raise WorkerLost({"status": "crash", "reason": "killed"})
        return ask(self, name, *request, **more)

    monkeypatch.setattr(Workers, "ask", losing)
    rows = rows_of(supervisor, "right", "other")
    assert lost and {row["status"] for row in rows.values()} == {"ok"}
    assert rows["right"]["sustained_ms"] and len({row["together"] for row in rows.values()}) == 1


@pytest.mark.process
@pytest.mark.parametrize("during", ["stretch", "rounds"])
def test_load_during_the_stretch_marks_the_row(supervisor, monkeypatch, during):
    def state(watch):
        long = len(watch._samples) > 2  # only a stretch is as long
        return State(other_load=0.6 if long == (during == "stretch") else 0.0, seconds=1.0)

    monkeypatch.setattr(Watch, "end", state)
    rows = rows_of(supervisor, "right")
    assert "loaded" in rows["right"]["marks"] and rows["right"]["other_load"] == 0.6
