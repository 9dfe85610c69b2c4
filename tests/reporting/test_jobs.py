"""Which jobs and devices measured the rows of a report."""

import pandas as pd
import pytest

from lmperf.reporting.evidence import MachineEvidence, typed_rows
from lmperf.reporting.health import notices_of
from lmperf.reporting.jobs import (
    apart_from_ceilings,
    beside_other_jobs,
    devices_of_rows,
    gpus_words,
    on_several_devices,
    rows_by_job,
)
from lmperf.reporting.machine import facts_table
from lmperf.reporting.sections.method import cost_table

FIRST, SECOND = "2026-11-24T10:00:30.000+00:00", "2026-11-24T20:00:30.000+00:00"


def job(stem, hour, gpus):
    day = f"2026-11-24T{hour}"
    return {"stem": stem, "started_at": f"{day}:00:00.000+00:00", "gpus": gpus} | {
        "finished_at": f"{day}:01:00.000+00:00",
        "wall_s": 60.0,
    }


def evidence(jobs, measured_at, **others):
    """Evidence with rows of lrpe, and of other benchmarks, measured at these times."""
    frames = {
        stem: pd.DataFrame(
            {"measured_at": of, "status": "ok", "median_ms": 1.0, "environment": "e"}
        )
        for stem, of in {"lrpe": measured_at, **others}.items()
    }
    facts = {"environments": {"e": {"device": "H100", "uuid": "GPU-b"}}}
    return MachineEvidence("here", facts, frames, cost=pd.DataFrame(jobs))


@pytest.mark.parametrize(
    ("gpus", "measured_at", "said"),
    [
        (("GPU-a", "GPU-b"), [FIRST, SECOND], "md_lrpe_cosine (2 GPUs)"),
        (("GPU-a", "GPU-a"), [FIRST, SECOND], ""),
        (("GPU-a", "GPU-b"), [SECOND, SECOND], ""),  # the first job's rows were replaced
        (("", "GPU-b"), [FIRST, SECOND], ""),  # not recorded
    ],
)
def test_benchmarks_on_several_devices_are_named(gpus, measured_at, said):
    jobs = [job("lrpe", "10", gpus[0]), job("lrpe", "20", gpus[1])]
    assert on_several_devices(evidence(jobs, measured_at), ["lrpe", "memory"]) == said


def devices_of(found):
    return devices_of_rows(found, found.frame("lrpe"), "lrpe")


def test_device_of_a_row_is_that_of_its_job():
    at = [FIRST, "2026-11-24T15:00:30Z", SECOND, "2026-11-24T22:00:30Z"]
    hours = {"10": "GPU-a", "20": "GPU-b;GPU-c", "22": ""}
    jobs = [job("lrpe", hour, gpus) for hour, gpus in hours.items()]
    found = devices_of(evidence([*jobs, job("memory", "15", "GPU-d")], at))
    started = "2026-11-24T22:00:00.000+00:00"  # identifies a job that did not record its GPUs
    assert [*found.fillna("")] == ["GPU-a", "", "GPU-b;GPU-c", started]


@pytest.mark.filterwarnings("error")
def test_each_job_is_a_device_if_none_recorded_its_gpus():
    jobs = pd.DataFrame([job("lrpe", hour, "") for hour in ("10", "20")])
    found = evidence([], [FIRST, SECOND])
    found.cost = typed_rows(jobs.to_dict("records"), {}, "cost")
    assert found.cost["gpus"].dtype == float
    assert [*devices_of(found)] == [*jobs["started_at"]]


def test_device_is_unknown_where_jobs_on_two_gpus_overlap():
    jobs = [job("lrpe", "10", gpus) for gpus in ("GPU-a", "GPU-b")]
    assert devices_of(evidence(jobs, [FIRST])).isna().all()
    assert [*devices_of(evidence([jobs[0]] * 2, [FIRST]))] == ["GPU-a"]


def test_row_names_its_gpu_where_jobs_overlap():
    jobs = [job("lrpe", "10", gpus) for gpus in ("GPU-a", "GPU-b")]
    found = evidence(jobs, [FIRST] * 3)
    found.frames["lrpe"]["gpus"] = ["GPU-a", "GPU-b", "GPU-b"]
    assert [*devices_of(found)] == ["GPU-a", "GPU-b", "GPU-b"]
    assert [*rows_by_job(found)] == [1, 2]


def test_row_names_its_gpu_without_a_record_of_jobs():
    found = evidence([], [FIRST])
    found.frames["lrpe"]["gpus"], found.cost = "GPU-a", None
    assert [*devices_of(found)] == ["GPU-a"]


def test_row_between_two_jobs_counts_once():
    jobs = [job("lrpe", "10", "GPU-a"), job("lrpe", "10", "GPU-b")]
    jobs[0]["finished_at"] = "2026-11-24T10:00:30.400+00:00"
    jobs[1]["started_at"] = "2026-11-24T10:00:30.600+00:00"
    of_first, of_second = "2026-11-24T10:00:30.300+00:00", "2026-11-24T10:00:30.700+00:00"
    found = evidence(jobs, [of_first, of_second])
    assert [*rows_by_job(found)] == [1, 1] and [*devices_of(found)] == ["GPU-a", "GPU-b"]
    whole_second = evidence([jobs[0]], ["2026-11-24T10:00:31+00:00"])
    assert [*rows_by_job(whole_second)] == [1]


@pytest.mark.parametrize(
    ("hour", "gpus", "said"),
    [("10", "GPU-b", "md_lrpe_cosine"), ("10", "GPU-a", ""), ("20", "GPU-b", "")],
)
def test_benchmarks_beside_jobs_on_other_gpus_are_named(hour, gpus, said):
    jobs = [job("lrpe", "10", "GPU-a"), job("memory", hour, gpus)]
    at = {"10": FIRST, "20": SECOND}[hour]
    found = evidence(jobs, [FIRST], memory=[at])
    assert beside_other_jobs(found, ["lrpe"]) == said
    assert notices_of(found, ["lrpe"])["beside_other_jobs"] == said


def test_job_whose_rows_were_replaced_still_ran_beside_others():
    jobs = [job("lrpe", "10", "GPU-a"), job("memory", "10", "GPU-b"), job("memory", "20", "GPU-b")]
    found = evidence(jobs, [FIRST], memory=[SECOND])
    assert beside_other_jobs(found, ["lrpe", "memory"]) == "md_lrpe_cosine"


def test_machine_of_several_gpus_is_not_described_by_one():
    jobs = [job("lrpe", "10", "GPU-a"), job("lrpe", "20", "GPU-b"), job("lrpe", "22", "GPU-c")]
    several = evidence(jobs, [FIRST, SECOND])
    assert gpus_words(several) == "2 GPUs"
    table = facts_table(several)
    assert "measured on 2 GPUs" in table.notes and "uuid" not in [*table.frame["fact"]]
    assert "uuid" in [*facts_table(evidence(jobs, [SECOND])).frame["fact"]]
    unknown = evidence([*jobs, job("lrpe", "21", "")], [FIRST, SECOND, "2026-11-24T21:00:01Z"])
    assert gpus_words(unknown) == "at least 2 GPUs"


def test_rows_on_another_gpu_than_the_ceilings_are_counted():
    jobs = [job("ceilings", "10", "GPU-a"), job("lrpe", "20", "GPU-b")]
    found = evidence(jobs, [SECOND, SECOND], ceilings=[FIRST])
    assert str(apart_from_ceilings(found, ["lrpe", "ceilings"])) == "2 of 2"
    assert notices_of(found, ["lrpe"])["apart"]
    jobs[0]["gpus"] = "GPU-b"
    same = evidence(jobs, [SECOND], ceilings=[FIRST])
    assert apart_from_ceilings(same, ["lrpe"]).none and not notices_of(same, ["lrpe"])["apart"]
    assert apart_from_ceilings(evidence(jobs[1:], [SECOND]), ["lrpe"]).none


def test_only_rows_with_a_time_count_beside_the_ceilings():
    jobs = [job("ceilings", "10", "GPU-a"), job("lrpe", "20", "GPU-b")]
    found = evidence(jobs, [SECOND] * 4, ceilings=[FIRST])
    rows = found.frames["lrpe"]
    rows["status"] = ["ok", "ok", "oom", "unsupported"]
    rows.loc[1:, "median_ms"] = None
    assert str(apart_from_ceilings(found, ["lrpe"])) == "1 of 1"
    assert [*rows_by_job(found)] == [1, 4], "the cost is shared by all rows"


def test_steps_back_to_back_are_noticed_only_on_pages_that_have_some():
    jobs = [job("lrpe", "10", "GPU-a"), job("end_to_end", "20", "GPU-b")]
    found = evidence(jobs, [FIRST], end_to_end=[SECOND] * 2)
    for stem, phase in (("lrpe", "forward"), ("end_to_end", "train_step")):
        found.frames[stem] = found.frames[stem].assign(phase=phase, sustained_rounds_ms="1.0;1.0")
    assert not notices_of(found, ["lrpe"])["back_to_back"]
    assert notices_of(found, ["lrpe", "end_to_end"])["back_to_back"]


def test_jobs_without_a_row_left_are_named_below_the_cost():
    jobs = [job("lrpe", "10", "GPU-a"), job("lrpe", "20", "GPU-b")]
    table = cost_table(evidence(jobs, [SECOND]))
    assert "Left out: 1 job (60" in table.notes
    assert cost_table(evidence(jobs, [FIRST, SECOND])).notes == ""


def test_missing_rows_name_their_benchmark_on_a_page_of_several():
    found = evidence([job("lrpe", "10", "GPU-a")], [FIRST])
    found.missing = {"lrpe": ["a cell"]}
    assert notices_of(found, ["lrpe"])["missing"] == ["a cell"]
    both = notices_of(found, ["lrpe", "lrpe_check"])["missing"]
    assert both == ["md_lrpe_cosine: a cell"]
