"""Published CSVs and the stores behind them: appends, damage, a full disk, writers at once."""

import codecs
import multiprocessing
import os
import subprocess

import pytest

from lmperf.evidence.store import RowFiles
from lmperf.gate import UNCHECKED

CASE = ("size", "implementation", "phase")


def row(size="8", at="1", **more):
    return {"size": size, "implementation": "a", "phase": "f", "measured_at": at, **more}


@pytest.fixture
def evidence(tmp_path):
    return RowFiles(tmp_path, "x", CASE)


@pytest.fixture
def store(tmp_path):
    """The path of the file to which rows are appended."""
    return tmp_path / "store/x.csv"


def sizes(rows):
    return [one["size"] for one in rows]


def test_last_measurement_of_a_case_replaces_all_its_rows(evidence):
    evidence.append([row(tensor="q", x=0.1), row(tensor="k"), row("16")])
    evidence.append([row(at="2", y='a "b", \n c', tensor="v")])
    rows, faults = evidence.known()
    assert not faults
    assert [(one["size"], one.get("tensor")) for one in rows] == [("8", "v"), ("16", "")]
    assert rows[0]["y"] == 'a "b", c' and "x" not in rows[0]


def test_row_whose_check_lacks_memory_is_unchecked(evidence):
    failed = {"status": "failed_check"}
    evidence.append(
        [row("8", **failed, reason=UNCHECKED), row("16", **failed, reason="it differs")]
    )
    statuses = [one["status"] for one in evidence.known()[0]]
    assert statuses == ["unchecked", "failed_check"]


AHEAD = "9999-01-01"


@pytest.mark.parametrize(
    ("published", "stored", "known"),
    [
        *(("1", ["2"], "2"), ("2", ["1"], "of Git"), (AHEAD, ["1"], "1"), ("1", [AHEAD], "of Git")),
        *((AHEAD, [AHEAD, "1"], "1"), ("1", ["2", "1"], "1"), (AHEAD, [], "of Git")),
    ],
)
def test_last_line_of_the_store_counts_unless_git_has_a_later_time(
    evidence, published, stored, known
):
    for at in stored:
        evidence.append([row(at=at, text=at)])
    evidence.publish([row(at=published, text="of Git")])
    last = evidence.known()[0]
    assert [one["text"] for one in last] == [known] or last[0]["measured_at"] == known
    assert len(last) == 1


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: codecs.BOM_UTF8 + text,
        lambda text: text.removesuffix(b"\n"),
    ],
    ids=["CRLF", "BOM", "no newline at the end"],
)
def test_rows_survive_what_git_and_editors_change(evidence, changed):
    rows = [row("8", text="ˢ"), row("16", text="a, b")]
    evidence.publish(rows)
    evidence.path.write_bytes(changed(evidence.path.read_bytes()))
    assert evidence.published() == (rows, [])


def test_merge_of_two_measurements_keeps_the_later_one(evidence):
    evidence.publish([row("8", at="1"), row("16")])
    ours = evidence.path.read_text()
    evidence.publish([row("8", at="2"), row("32")])
    theirs = evidence.path.read_text()
    evidence.path.write_text(ours + theirs)
    both = [("8", "2"), ("16", "1"), ("32", "1")]
    assert [(one["size"], one["measured_at"]) for one in evidence.published()[0]] == both
    evidence.path.write_text(f"<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> theirs\n")
    rows, (fault,) = evidence.published()
    assert sizes(rows) == ["8", "16", "32"]
    assert fault.endswith(
        "3 lines are damaged and not used: line 1 is a conflict marker of a merge; take one side,"
        " or measure again"
    )


@pytest.mark.parametrize(
    ("saved", "words"),
    [
        (("True", "TRUE"), ": a spreadsheet saved it; restore it from Git"),
        ((",", ";"), ": a spreadsheet saved it; restore it from Git"),
        (("digest,", ""), ": it lacks digests, as those of an earlier version of lmperf"),
    ],
)
def test_csv_of_another_program_is_named(evidence, saved, words):
    evidence.publish([row("8", causal=True, ms=1.5)])
    evidence.path.write_text(evidence.path.read_text().replace(*saved))
    rows, (fault,) = evidence.published()
    assert rows == [] and words in fault


@pytest.mark.parametrize("folder", ["evidence", "store"])
def test_damaged_row_is_named_and_comes_from_the_other_file(evidence, tmp_path, folder):
    evidence.append([row("8", ms=1.5), row("16", ms=2.5)])
    evidence.publish(evidence.known()[0])
    path = tmp_path / folder / "x.csv"
    path.write_text(path.read_text().replace("1.5", "1.4"))
    rows, (fault,) = evidence.known()
    assert sorted(one["ms"] for one in rows) == ["1.5", "2.5"]
    assert fault == f"{path}: line 2 is damaged and not used"
    evidence.mend(rows)
    evidence.publish(rows)
    assert evidence.known() == (rows, [])


def test_rows_below_edited_column_names_are_dropped(evidence, store):
    evidence.append([row("8", ms=1.5)])
    evidence.append([row("16", s=2.5)])
    store.write_text(store.read_text().replace("at,s\n", "at,ms\n"))
    rows, (fault,) = evidence.known()
    assert sizes(rows) == ["8"] and "line 4 is damaged" in fault


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_cut_line_is_dropped_and_harms_no_other(evidence, store, cut):
    evidence.append([row("8"), row("16")])
    os.truncate(store, store.stat().st_size - cut)
    kept = ["8", "16"] if cut == 1 else ["8"]
    assert sizes(evidence.known()[0]) == kept
    evidence.append([row("32")])
    rows, faults = evidence.known()
    assert sizes(rows) == [*kept, "32"] and len(faults) == (cut > 1)


def test_added_axes_are_read_as_empty(tmp_path):
    old = RowFiles(tmp_path, "x", ("size",))
    old.publish([{"size": "2.0B", "measured_at": "1"}])
    rows, _ = RowFiles(tmp_path, "x", ("size", "ranks")).known()
    assert rows == [{"size": "2.0B", "ranks": "", "measured_at": "1"}]


def test_full_disk_leaves_the_store_as_it_was(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system")
    try:
        evidence, store = RowFiles(small, "x", CASE), small / "store/x.csv"
        evidence.append([row("8")])
        before = store.read_bytes()
        with pytest.raises(OSError):
            evidence.append([row(str(n), text="x" * 100) for n in range(200)])
        assert store.read_bytes() == before
        evidence.append([row("16")])
        assert sizes(evidence.known()[0]) == ["8", "16"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _append(folder, number):
    for at in range(20):
        rows = [row(number, str(at), text="x" * 5000), row(number, str(at))]
        RowFiles(folder, "x", CASE).append(rows)


def test_writers_at_once_lose_nothing(evidence, store, tmp_path):
    writers = [multiprocessing.Process(target=_append, args=(tmp_path, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(store.read_text().splitlines()) == 4 * 20 * 3
    rows, faults = evidence.known()
    assert not faults and len(rows) == 8
