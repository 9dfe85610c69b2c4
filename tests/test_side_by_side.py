"""Benchmarks that run side by side, on two GPUs that are pretended: the work runs on the CPU.

The tests show locks, environments, order and files. They say nothing about times.
"""

import time

import pytest
from checkout import REPORT, Checkout

from lmperf.evidence.store import read_rows
from lmperf.measuring.gpus import PRETENDED, VISIBLE

pytestmark = [pytest.mark.process, pytest.mark.snakemake, pytest.mark.slow]

CONFIG = """
preset: cpu
machine: here
benchmarks: [attention, mixed_precision]
grid:
  attention:
    {batch: [1], d_head: [16], seq_len: [32, 48], dtype: [float32], implementation: [eager]}
  mixed_precision:
    {experiment: [accumulation], subject: ["float32 + float32"], dtype: [float32],
     implementation: [eager]}
"""
TARGETS = ("attention", "mixed_precision")
AT_ONCE = ("-m", "snakemake", "--cores", "2", "--resources", "gpu=2", "--", *TARGETS)
TWO = {PRETENDED: "2"}


def shown_gpus(run):
    """The values of CUDA_VISIBLE_DEVICES that running processes have, one each."""
    name = f"{VISIBLE}=".encode()
    found = set()
    for pid in run.alive():
        words = environment_of(pid).split(b"\0")
        found |= {word.removeprefix(name).decode() for word in words if word.startswith(name)}
    return found


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_two_jobs_run_at_once_each_on_a_gpu_of_its_own(tmp_path):
    checkout = Checkout(tmp_path / "checkout")
    (checkout.root / "config/config.yaml").write_text(CONFIG)
    run = checkout.start(*AT_ONCE, **TWO)
    seen, until = [], time.monotonic() + 240  # `wait` fails a run that hangs
    while not run.is_over and time.monotonic() < until:
        seen.append(shown_gpus(run))
        time.sleep(0.1)
    assert run.wait().code == 0, run.said
    assert {"pretended-0", "pretended-1"} in seen, "workers of both jobs, at one moment"
    jobs = read_rows(checkout.root / "report/here/evidence/cost.csv")
    assert {job["gpus"] for job in jobs} == {"pretended-0", "pretended-1"}
    for job in jobs:
        rows = read_rows(checkout.root / f"report/here/evidence/{job['stem']}.csv")
        assert {row["gpus"] for row in rows} == {job["gpus"]}
    first, second = sorted(jobs, key=lambda job: job["started_at"])
    assert second["started_at"] < first["finished_at"], "their times overlap"
    assert run.gone()
    alone = checkout.run(*REPORT[:-1], "--dry-run", *TARGETS)
    assert "Nothing to be done" in alone.said, "a job alone would measure the same"
