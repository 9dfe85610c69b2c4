"""Published CSVs and the stores behind them: what counts when they differ, or are damaged."""

import codecs
import csv
import hashlib
import io

import pytest

from lmperf.evidence.store import DamagedEvidence, Evidence, read, read_rows

CASE = ("size", "implementation", "phase")


def row(size="8", at="1", **more):
    return {"size": size, "implementation": "a", "phase": "f", "measured_at": at, **more}


@pytest.fixture
def evidence(tmp_path):
    return Evidence(tmp_path, "x", CASE)


def sizes(rows):
    return [one["size"] for one in rows]


def write_old(path, rows):
    """Write a CSV as older versions did, with one digest for all of it in a file beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".sha256").write_text(f"{digest}  {path.name}\n")


def test_view_has_the_rows_that_are_published(evidence):
    evidence.append([row("8"), row("16")])
    assert sizes(evidence.known()[0]) == ["8", "16"] and evidence.published() == ([], [])
    evidence.publish(evidence.known()[0][:1])
    assert sizes(evidence.published()[0]) == ["8"]
    assert sizes(evidence.known()[0]) == ["8", "16"]


def test_clone_without_a_store_knows_its_view(evidence, tmp_path):
    evidence.append([row("8")])
    evidence.publish(evidence.known()[0])
    (tmp_path / "store/x.csv").unlink()
    assert sizes(evidence.known()[0]) == ["8"]


@pytest.mark.parametrize(("published", "stored", "known"), [("1", "2", "s"), ("3", "2", "v")])
def test_later_of_two_measurements_counts(evidence, published, stored, known):
    evidence.append([row(at=stored, text="s")])
    evidence.publish([row(at=published, text="v")])
    assert [one["text"] for one in evidence.known()[0]] == [known]


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: codecs.BOM_UTF8 + text,
        lambda text: text.removesuffix(b"\n"),
    ],
    ids=["CRLF", "BOM", "no newline at the end"],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_rows_survive_what_git_and_editors_change(evidence, changed, is_old):
    rows = [row("8", text="ˢ"), row("16", text="a, b")]
    write_old(evidence.path, rows) if is_old else evidence.publish(rows)
    evidence.path.write_bytes(changed(evidence.path.read_bytes()))
    assert evidence.published() == (rows, [])


def test_rows_may_be_sorted(evidence):
    evidence.publish([row("8"), row("16")])
    header, *lines = evidence.path.read_text().splitlines(keepends=True)
    evidence.path.write_text("".join([header, *reversed(lines)]))
    assert [sizes(evidence.published()[0]), evidence.published()[1]] == [["16", "8"], []]


def test_merge_of_two_measurements_keeps_the_later_one(evidence):
    evidence.publish([row("8", at="1"), row("16")])
    ours = evidence.path.read_text()
    evidence.publish([row("8", at="2"), row("32")])
    theirs = evidence.path.read_text()
    evidence.path.write_text(ours + theirs)
    assert sizes(evidence.published()[0]) == ["16", "8", "32"]
    evidence.path.write_text(f"<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> theirs\n")
    rows, (fault,) = evidence.published()
    assert sizes(rows) == ["16", "8", "32"]
    assert fault.endswith(
        "3 lines are damaged and not used: line 1 is a conflict marker of a merge; take one side,"
        " or measure again"
    )


@pytest.mark.parametrize("saved", [("True", "TRUE"), (",", ";")])
@pytest.mark.parametrize("is_old", [False, True])
def test_csv_saved_by_a_spreadsheet_is_named(evidence, saved, is_old):
    rows = [row("8", causal=True, ms=1.5)]
    write_old(evidence.path, rows) if is_old else evidence.publish(rows)
    evidence.path.write_text(evidence.path.read_text().replace(*saved))
    rows, (fault,) = evidence.published()
    assert rows == [] and ": a spreadsheet saved it; restore it from Git" in fault


@pytest.mark.parametrize("folder", ["evidence", "store"])
def test_damaged_row_is_named_and_comes_from_the_other_file(evidence, tmp_path, folder):
    evidence.append([row("8", ms=1.5), row("16", ms=2.5)])
    evidence.publish(evidence.known()[0])
    path = tmp_path / folder / "x.csv"
    path.write_text(path.read_text().replace("1.5", "1.4"))
    rows, (fault,) = evidence.known()
    assert [one["ms"] for one in rows] == (
        ["2.5", "1.5"] if folder == "evidence" else ["1.5", "2.5"]
    )
    assert fault == f"{path}: line 2 is damaged and not used"
    evidence.mend(rows)
    evidence.publish(rows)
    assert evidence.known() == (rows, [])


def test_row_damaged_in_both_files_is_dropped(evidence, tmp_path):
    evidence.append([row("8", ms=1.5), row("16", ms=2.5)])
    evidence.publish(evidence.known()[0])
    for path in tmp_path.rglob("x.csv"):
        path.write_text(path.read_text().replace("1.5", "1.4"))
    rows, faults = evidence.known()
    assert sizes(rows) == ["16"] and len(faults) == 2


def test_damage_is_an_error_for_a_strict_reader(evidence):
    evidence.publish([row()])
    evidence.path.write_text(evidence.path.read_text()[:-3])
    assert len(read(evidence.path)[1]) == 1
    with pytest.raises(DamagedEvidence, match="line 2 is damaged"):
        read_rows(evidence.path)


def test_csv_of_older_versions_is_read_and_replaced(evidence):
    write_old(evidence.path, [row("8"), row("16", at="0")])
    assert sizes(evidence.published()[0]) == ["8", "16"] and read_rows(evidence.path)
    evidence.append([row("16", at="2")])
    evidence.publish(evidence.known()[0])
    assert evidence.path.read_text().startswith("digest,")
    assert not evidence.path.with_suffix(".sha256").exists()
    assert [one["measured_at"] for one in read_rows(evidence.path)] == ["1", "2"]


def test_edited_csv_of_older_versions_is_not_used(evidence):
    write_old(evidence.path, [row("8")])
    evidence.path.write_text(evidence.path.read_text().replace("8", "9"))
    rows, (fault,) = evidence.published()
    assert rows == [] and fault == (
        f"{evidence.path} does not match its digest and is not used: it was edited, sorted or saved"
        " by another program"
    )


def test_store_of_older_versions_gives_way_to_a_new_one(evidence, tmp_path):
    write_old(tmp_path / "store/x.csv", [row("8")])
    assert evidence.known() == ([], [])
    evidence.append([row("16")])
    assert sizes(evidence.known()[0]) == ["16"] and evidence.known()[1] == []


def test_added_axes_are_read_as_empty(tmp_path):
    old = Evidence(tmp_path, "x", ("size",))
    old.publish([{"size": "2.0B", "measured_at": "1"}])
    rows, _ = Evidence(tmp_path, "x", ("size", "ranks")).known()
    assert rows == [{"size": "2.0B", "ranks": "", "measured_at": "1"}]
