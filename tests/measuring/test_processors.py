"""How many processors a process may use, read from files as Linux shows them."""

import os

import pytest

from lmperf.benchmark import Timed
from lmperf.measuring import processors
from lmperf.measuring.job import Job

MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/a rw
34 31 0:31 / {at}/cpuset rw - cgroup cgroup rw,cpuset
33 31 0:30 {root} {at}/cpu rw shared:9 - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 {root} {at}/unified rw - cgroup2 cgroup2 rw
"""
GROUPS = "5:cpuset:/other\n1:cpu,cpuacct:{group}\n0::{group}\n"
V1, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("group", "root", "files", "expected"),
    [
        ("/", "/", {}, 8),
        ("/", "/", {"unified/cpu.max": "50000 100000"}, 0.5),
        ("/", "/", {"unified/cpu.max": "max 100000"}, 8),
        ("/a/b", "/", {"unified/a/cpu.max": "300000 100000", "unified/a/b/cpu.max": "max 1"}, 3),
        ("/", "/", {f"cpu/{V1}": "50000", f"cpu/{PERIOD}": "100000"}, 0.5),
        ("/", "/", {f"cpu/{V1}": "-1", f"cpu/{PERIOD}": "100000"}, 8),
        ("/", "/", {"unified/cpu.max": "9900000 100000"}, 8),
        # A container without a namespace of its own sees only its own group, as the mount's root.
        ("/docker/1", "/docker/1", {f"cpu/{V1}": "250000", f"cpu/{PERIOD}": "100000"}, 2.5),
    ],
)
def test_least_quota_of_the_groups_counts(monkeypatch, tmp_path, group, root, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)}, raising=False)
    monkeypatch.setattr(processors, "_PROC", tmp_path)
    texts = {"mountinfo": MOUNTS.format(at=tmp_path, root=root), "cgroup": GROUPS}
    for name, text in {**texts, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text.format(group=group) + "\n" * name.startswith("cpu/"))
    assert processors.usable() == expected
    assert processors.threads() == max(1, int(expected))


@pytest.mark.parametrize(
    ("quota", "given", "threads"),
    [(1.5, {}, "1"), (1.5, {"OMP_NUM_THREADS": "2"}, "2"), (9, {}, None)],
)
def test_workers_have_as_many_threads_as_may_run(monkeypatch, quota, given, threads):
    monkeypatch.setattr(os, "environ", given)
    monkeypatch.setattr(processors, "affinity", lambda: 4)
    monkeypatch.setattr(processors, "_quotas", lambda: iter([quota]))
    assert Job(Timed("x"), "cpu", []).environ("cache", []).get("OMP_NUM_THREADS") == threads
