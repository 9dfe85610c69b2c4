"""Which jobs and devices measured the rows of a report."""

import pandas as pd
import pytest

from lmperf.reporting.evidence import MachineEvidence
from lmperf.reporting.jobs import on_several_devices

FIRST, SECOND = "2026-11-24T10:00:30.000+00:00", "2026-11-24T20:00:30.000+00:00"


def job(stem, hour, gpus):
    day = f"2026-11-24T{hour}"
    return {"stem": stem, "started_at": f"{day}:00:00.000+00:00", "gpus": gpus} | {
        "finished_at": f"{day}:01:00.000+00:00",
        "wall_s": 60.0,
    }


def evidence(jobs, measured_at):
    rows = pd.DataFrame({"measured_at": measured_at, "status": "ok"})
    return MachineEvidence("here", {}, {"lrpe": rows}, cost=pd.DataFrame(jobs))


@pytest.mark.parametrize(
    ("gpus", "measured_at", "said"),
    [
        (("GPU-a", "GPU-b"), [FIRST, SECOND], "md_lrpe_cosine"),
        (("GPU-a", "GPU-a"), [FIRST, SECOND], ""),
        (("GPU-a", "GPU-b"), [SECOND, SECOND], ""),  # the first job's rows were replaced
        (("", "GPU-b"), [FIRST, SECOND], ""),  # not recorded
    ],
)
def test_benchmarks_on_several_devices_are_named(gpus, measured_at, said):
    jobs = [job("lrpe", "10", gpus[0]), job("lrpe", "20", gpus[1])]
    assert on_several_devices(evidence(jobs, measured_at), ["lrpe", "memory"]) == said
