"""The store: durable appends, damaged lines, views, a full disk, several writers."""

import multiprocessing
import os
import subprocess

import pytest

from lmperf.measuring.store import Store, write_view

CASE = ("size", "implementation", "phase")


def row(size=8, at="1", **more):
    return {"size": size, "implementation": "a", "phase": "f", "measured_at": at, **more}


def sizes(store):
    return [one["size"] for one in store.read()[0]]


def test_the_last_measurement_of_a_case_replaces_all_its_rows(tmp_path):
    store = Store(tmp_path / "s" / "x.csv", CASE)
    store.append([row(tensor="q", x=0.1), row(tensor="k"), row(16)])
    store.append([row(at="2", y='a "b", \n c', tensor="v")])
    rows, damaged = store.read()
    assert not damaged
    assert [(one["size"], one["tensor"]) for one in rows] == [("8", "v"), ("16", "")]
    assert rows[0]["y"] == 'a "b", c' and "x" not in rows[0]


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_cut_line_is_dropped_and_harms_no_other(tmp_path, cut):
    store = Store(tmp_path / "x.csv", CASE)
    store.append([row(8), row(16)])
    os.truncate(store.path, store.path.stat().st_size - cut)
    kept = ["8", "16"] if cut == 1 else ["8"]
    assert sizes(store) == kept
    store.append([row(32)])
    assert sizes(store) == [*kept, "32"]
    assert store.read()[1] == ([] if cut == 1 else [3])


def test_an_edited_line_is_dropped_and_named(tmp_path):
    store = Store(tmp_path / "x.csv", CASE)
    store.append([row(8, ms=1.5), row(16, ms=2.5)])
    store.path.write_text(store.path.read_text().replace("1.5", "1.4"))
    assert sizes(store) == ["16"] and store.read()[1] == [2]


def test_rows_below_edited_column_names_are_dropped(tmp_path):
    store = Store(tmp_path / "x.csv", CASE)
    store.append([row(8, ms=1.5)])
    store.append([row(16, s=2.5)])
    store.path.write_text(store.path.read_text().replace("at,s\n", "at,ms\n"))
    assert sizes(store) == ["8"] and store.read()[1] == [4]


def test_a_view_is_read_like_a_store_and_written_whole(tmp_path):
    store, view = (Store(tmp_path / name, CASE) for name in ("s.csv", "v.csv"))
    store.append([row(8), row(16)])
    store.append([row(8, "2", new=1)])
    write_view(view.path, store.read()[0])
    before = view.path.stat().st_mtime_ns
    write_view(view.path, store.read()[0])
    assert view.path.stat().st_mtime_ns == before
    assert len(view.path.read_text().splitlines()) == 3
    assert sizes(view) == ["8", "16"] and sorted(os.listdir(tmp_path)) == ["s.csv", "v.csv"]


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("cannot mount a small file system")
    try:
        store = Store(small / "x.csv", CASE)
        store.append([row(8)])
        before = store.path.read_bytes()
        with pytest.raises(OSError):
            store.append([row(n, text="x" * 100) for n in range(200)])
        assert store.path.read_bytes() == before
        store.append([row(16)])
        assert sizes(store) == ["8", "16"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


def _append(path, number):
    for at in range(20):
        Store(path, CASE).append([row(number, str(at), text="x" * 5000), row(number, str(at))])


def test_writers_at_once_lose_nothing(tmp_path):
    path = tmp_path / "x.csv"
    writers = [multiprocessing.Process(target=_append, args=(path, n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(path.read_text().splitlines()) == 4 * 20 * 3
    rows, damaged = Store(path, CASE).read()
    assert not damaged and len(rows) == 8
