"""Tests of evidence files: lmperf replaces them as a whole; any other change is detected."""

import errno
import fcntl
import hashlib
import os
import stat
import time

import pytest

from lmperf.evidence import store
from lmperf.evidence.cost import Cost
from lmperf.evidence.store import (
    DamagedEvidence,
    Evidence,
    lock_folder,
    locked,
    no_later_than_now,
    read_rows,
)

IDENTITY = ("seq_len", "implementation", "phase")


@pytest.fixture
def evidence(tmp_path):
    return Evidence(tmp_path / "attention.csv", IDENTITY, IDENTITY)


def row(seq_len, median_ms=1.0, **more):
    columns = {"implementation": "eager", "phase": "forward", "status": "ok"}
    return {"seq_len": seq_len, **columns, "median_ms": median_ms, **more}


def medians(evidence):
    return {found["seq_len"]: found["median_ms"] for found in evidence.read()}


def test_replace_keeps_other_cases(evidence):
    evidence.replace([row(128, 1.0), row(256, 2.0)])
    evidence.replace([row(128, 3.0), row(512, 4.0)])
    assert medians(evidence) == {"128": "3.0", "256": "2.0", "512": "4.0"}


def test_floats_keep_full_precision(evidence):
    evidence.replace([row(128, 0.1 + 0.2)])
    assert float(evidence.read()[0]["median_ms"]) == 0.1 + 0.2


def test_read_replaces_former_names_of_axis_values(tmp_path):
    path = tmp_path / "memory.csv"
    Evidence(path, ("size",), ("size",)).replace([{"size": "xl"}, {"size": "tiny"}])
    content = path.read_bytes()
    now = Evidence(path, ("size",), ("size",), {"size": {"xl": "2.0B"}})
    assert [row["size"] for row in now.read()] == ["2.0B", "tiny"]
    assert path.read_bytes() == content
    now.replace([{"size": "2.0B", "median_ms": 1.0}])
    assert [row["size"] for row in now.read()] == ["2.0B", "tiny"]


def test_none_is_written_as_empty_cell(evidence):
    evidence.replace([row(128, None), row(256, tflops=2.5)])
    first, second = evidence.read()
    assert (first["median_ms"], first["tflops"], second["tflops"]) == ("", "", "2.5")


def test_digest_file_has_format_of_sha256sum(evidence):
    evidence.replace([row(128)])
    expected = hashlib.sha256(evidence.path.read_bytes()).hexdigest()
    assert evidence.digest_path.read_text() == f"{expected}  attention.csv\n"


def test_edited_file_is_detected(evidence):
    evidence.replace([row(128, 3.5)])
    evidence.path.write_text(evidence.path.read_text().replace("3.5", "3.4"))
    with pytest.raises(DamagedEvidence, match=r"attention\.csv was edited or truncated"):
        evidence.read()


def test_file_truncated_at_a_line_end_is_detected(evidence):
    evidence.replace([row(128), row(256)])
    lines = evidence.path.read_text().splitlines(keepends=True)
    evidence.path.write_text("".join(lines[:-1]))
    with pytest.raises(DamagedEvidence, match="edited or truncated"):
        evidence.read()


def test_missing_digest_file_is_detected(evidence):
    evidence.replace([row(128)])
    evidence.digest_path.unlink()
    with pytest.raises(DamagedEvidence, match=r"attention\.csv has no digest"):
        evidence.read()


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_killed_writer_leaves_a_valid_file(evidence, monkeypatch, writes):
    evidence.replace([row(128)])
    done = []

    def until_killed(source, target, replace=os.replace):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(target)
        replace(source, target)

    monkeypatch.setattr(store.os, "replace", until_killed)
    if writes < 3:
        with pytest.raises(KeyboardInterrupt):
            evidence.replace([row(256)])
    else:
        evidence.replace([row(256)])
    monkeypatch.undo()
    assert set(medians(evidence)) in ({"128"}, {"128", "256"})


def test_set_aside_renames_damaged_file(evidence):
    evidence.replace([row(128)])
    evidence.path.write_text("something else")
    aside = evidence.set_aside()
    assert aside.read_text() == "something else"
    assert read_rows(evidence.path) == []


def test_commas_quotes_and_line_ends_survive_round_trip(evidence):
    evidence.replace([row(128, reason='it said "no",\nthen ended')])
    assert evidence.read()[0]["reason"] == 'it said "no",\nthen ended'


def test_only_future_modification_times_are_reset(tmp_path):
    now = time.time()
    for name, then in {"late": now + 86400, "early": now - 86400}.items():
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (then, then))
    no_later_than_now([tmp_path / "late", tmp_path / "early", tmp_path / "not there"])
    assert now <= (tmp_path / "late").stat().st_mtime <= time.time()
    assert (tmp_path / "early").stat().st_mtime == pytest.approx(now - 86400)


@pytest.mark.slow
def test_jobs_at_once_neither_damage_nor_lose_rows(tmp_path):
    """Two processes write the cost of their jobs, while this one reads."""
    cost, children = Cost(tmp_path), []
    for stem in ("attention", "lrpe"):
        if not (child := os.fork()):
            for number in range(60):
                cost.replace([{"stem": stem, "started_at": str(number)}])
            os._exit(0)
        children.append(child)
    while children:
        cost.read()  # raises if the file and its digest differ
        children = [child for child in children if os.waitpid(child, os.WNOHANG) == (0, 0)]
    rows = cost.read()
    assert len(rows) == 120 and {row["stem"] for row in rows} == {"attention", "lrpe"}


def test_folder_that_cannot_be_locked_is_locked_by_a_file(tmp_path, monkeypatch):
    """As on NFS, which locks only what is open for writing."""
    real = fcntl.flock

    def flock(descriptor, operation):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, "no")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path), pytest.raises(BlockingIOError):
        lock_folder(tmp_path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock_folder(tmp_path, fcntl.LOCK_EX | fcntl.LOCK_NB))
