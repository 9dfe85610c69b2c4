"""How many processors this process may use: by its affinity, and by quotas of control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc/self")


def affinity() -> int:
    """Return the number of processors on which this process may run."""
    affinity_of = getattr(os, "sched_getaffinity", None)
    return len(affinity_of(0)) if affinity_of else os.cpu_count() or 1


def usable() -> float:
    """Return how many processors this process may use; a quota may leave half of one."""
    return min([float(affinity()), *_quotas()])


def threads() -> int:
    """Return how many threads can run at once on the usable processors."""
    return max(1, int(usable()))


def _quotas() -> Iterator[float]:
    """Yield the CPU quotas of this process's control groups and those above them, in processors.

    Version 2 has one tree of groups and the file `cpu.max`; version 1 has a tree for the controller
    `cpu`. A container may see only a part of the tree, whose root its mount names.
    """
    try:
        groups = [line.split(":", 2) for line in (_PROC / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (_PROC / "mountinfo").read_text().splitlines()]
    except OSError:  # not on Linux
        return
    paths = {"cgroup2" if not of else "cgroup": path for _, of, path in groups if _has_cpu(of)}
    for _, _, _, root, mount, *_, kind, _, options in mounts:
        if kind in paths and (kind == "cgroup2" or _has_cpu(options)):
            folder = Path(mount, paths[kind].removeprefix(root.rstrip("/")).strip("/"))
            for parent in (folder, *folder.parents):
                if parent.is_relative_to(mount):
                    yield from _quota_in(parent)


def _has_cpu(controllers: str) -> bool:
    """Whether `cpu` is among the controllers of a tree; version 2, which names none, has all."""
    return not controllers or "cpu" in controllers.split(",")


def _quota_in(folder: Path) -> Iterator[float]:
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((folder / name).read_text() for name in files).split()
        except (OSError, ValueError):
            continue
        if quota not in ("max", "-1"):
            yield int(quota) / int(period)
