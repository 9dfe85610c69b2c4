"""The workflow on a real SLURM of one node, and what happens to its jobs there."""

import os
import time

import pytest
import slurm
from checkout import Checkout
from configurations import attention

pytestmark = [
    pytest.mark.process,
    pytest.mark.snakemake,
    pytest.mark.slow,
    pytest.mark.skipif(slurm.missing() is not None, reason=slurm.missing() or ""),
]

# Without accounting only squeue answers.
WITHOUT_ACCOUNTING = (
    *("--slurm-status-command", "squeue", "--latency-wait", "10"),
    *("--slurm-init-seconds-before-status-checks", "2", "--seconds-between-status-checks", "2"),
)
PROFILE = ("-m", "snakemake", "--workflow-profile", "profiles/slurm", *WITHOUT_ACCOUNTING)
CORES = os.cpu_count()


@pytest.fixture(scope="module")
def cluster():
    found = slurm.Slurm()
    yield found
    found.stop()


def command(*more):
    """The command of docs/setup.md, for this cluster."""
    shared = ("--default-resources", "slurm_partition=first", f"cpus_per_task={CORES}")
    return (*PROFILE, "report/report.md", *more, *shared)


def until(holds, run, limit_s=240):
    end = time.monotonic() + limit_s
    while not holds():
        assert not run.is_over, run.wait().said
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.2)


def test_faults_of_a_cluster_lose_nothing(cluster, tmp_path):
    lengths = (32, 48, 64, 80, 96)
    checkout = Checkout(tmp_path / "checkout", attention(*lengths))
    stored = 0

    def measuring(*more):
        """Start the same command, and wait until its job has stored one more group."""
        nonlocal stored
        run = checkout.start(*command(*more))
        until(lambda: checkout.groups_stored() > stored and run.job(), run)
        stored = checkout.groups_stored()
        return run

    run = measuring()
    cluster.ask("scancel", *cluster.jobs("RUNNING"))
    assert run.wait().code and run.gone(60), "a cancelled job"

    run = measuring("--set-resources", "attention:gpu=1")
    cluster.node("down")  # SLURM puts the job back into the queue
    until(lambda: cluster.jobs("PENDING"), run)
    stored = checkout.groups_stored()
    cluster.node("resume")
    assert run.wait(600).code == 0, run.said

    assert checkout.groups_stored() == len(lengths), "nothing was measured twice"
    rows = checkout.rows
    assert len(rows) == 2 * len(lengths) and {row["status"] for row in rows} == {"ok"}
    report = checkout.run("-m", "lmperf.cli", "report")
    assert report.code == 0, report.said
    again = checkout.run(*command("--dry-run"))
    assert "Nothing to be done" in again.said
