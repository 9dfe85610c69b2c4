"""Published CSVs and the stores behind them: what counts when they differ, or are damaged."""

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


def test_new_measurement_replaces_all_rows_of_its_case(evidence):
    evidence.append([row(tensor="q"), row(tensor="k")])
    evidence.append([row(at="2", tensor="v")])
    assert [one["tensor"] for one in evidence.known()[0]] == ["v"]


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
    assert rows == [] and fault == f"{evidence.path} does not match its digest and is not used"


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
