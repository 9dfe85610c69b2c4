"""The report states its own cost, or says that it was not recorded."""

import pandas as pd
import pytest

from lmperf.reporting.claims import judge
from lmperf.reporting.environment import environment
from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.sections import cost


def job(stem, started, **seconds):
    kinds = dict.fromkeys([*cost.INSIDE, *cost.OUTSIDE], 0.0) | seconds
    ends = {"started_at": f"{started}.500+00:00", "finished_at": "2026-01-02T03:30:00.100+00:00"}
    return {"stem": stem, **ends, "wall_s": sum(kinds.values()), **kinds}


@pytest.fixture
def evidence(gpu):
    stems = ("ceilings", "attention")
    frames = {stem: gpu.frames[stem] for stem in stems}
    jobs = [
        job("ceilings", "2026-01-02T03:04:05", timing_s=60.0, start_s=6.0),
        job("attention", "2026-01-02T03:00:00", timing_s=400.0, first_calls_s=200.0, memory_s=40.0),
        job("attention", "2026-01-02T03:10:00", timing_s=1e6),
    ]
    return MachineEvidence("m", {"preset": "gpu"}, frames, cost=pd.DataFrame(jobs))


def said(evidence, name, templates):
    claim = next(c for c in cost.CLAIMS if c.name == name)
    return judge(claim, evidence, environment(templates))


def test_wall_time_and_the_share_inside_are_those_of_the_jobs_behind_the_rows(evidence, templates):
    wall = said(evidence, "wall", templates)
    assert wall.state == "true" and "11.8 minutes" in wall.sentence and "2 jobs" in wall.sentence
    inside = said(evidence, "inside", templates)
    assert inside.state == "true" and "93.5 %" in inside.sentence and "memory" in inside.sentence
    table = cost.tables(evidence)["cost"]
    assert "| ceilings " in table and "| all " in table and "1,000,000" not in table


def test_a_run_that_takes_too_long_or_mostly_waits_contradicts(evidence, templates):
    evidence.cost.loc[1, ["wall_s", "preparing_s"]] += 2400.0
    assert said(evidence, "wall", templates).state == "contradicted"
    assert said(evidence, "inside", templates).state == "contradicted"


def test_rows_of_jobs_that_left_no_record_are_said(evidence, templates):
    evidence.cost = evidence.cost.iloc[1:]
    wall = said(evidence, "wall", templates)
    assert wall.state == "missing" and "were not recorded" in wall.sentence


def test_without_any_record_the_rows_still_account_for_their_seconds(gpu, templates):
    gpu.cost = None
    assert said(gpu, "at_least", templates).state == "true"
    assert said(gpu, "wall", templates).state == "missing"
    assert cost.tables(gpu) == {"cost": ""}
