"""`replace_files` replaces all files of a report, or none if a write fails."""

import errno
import os
from pathlib import Path

import pytest

from lmperf.errors import UserError
from lmperf.reporting.files import replace_files

OLD = {"report.md": "old", "gone.md": "old", "figures/a.svg": "old", "kept.txt": "other"}
NEW = {"report.md": "new", "page.md": "new", "figures/a.svg": "new", "figures/b.svg": "new"}
GLOBS = ("figures/*.svg", "*.md")


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "figures").mkdir()
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def tree(directory):
    """Path -> text of every file in a directory, without entering linked directories."""
    files = [path for path in directory.rglob("*") if path.is_file() or path.is_symlink()]
    return {str(path.relative_to(directory)): path.read_text() for path in files}


def failing(monkeypatch, owner, name, at, code):
    """Make call number ``at`` of ``owner.name`` raise OSError; a write stops after one byte."""
    real, calls = getattr(owner, name), []

    def fails(*arguments):
        calls.append(arguments)
        if len(calls) - 1 != at:
            return real(*arguments)
        if name == "write_bytes":
            real(arguments[0], arguments[1][:1])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(owner, name, fails)


def test_files_are_replaced_and_stale_ones_removed(directory):
    replace_files(directory, NEW, GLOBS)
    assert tree(directory) == {**NEW, "kept.txt": "other"}


@pytest.mark.parametrize("at", range(len(NEW)))
def test_full_disk_leaves_every_file_unchanged(directory, monkeypatch, at):
    failing(monkeypatch, Path, "write_bytes", at, errno.ENOSPC)
    with pytest.raises(UserError) as raised:
        replace_files(directory, NEW, GLOBS)
    assert tree(directory) == OLD
    place = directory / list(NEW)[at]
    assert str(raised.value).startswith(f"{place}: cannot be written: no space left on device")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("at", range(len(NEW)))
def test_failed_rename_restores_the_files_before_it(directory, monkeypatch, at):
    failing(monkeypatch, os, "replace", at, errno.EPERM)
    with pytest.raises(UserError, match="cannot be written: operation not permitted"):
        replace_files(directory, NEW, GLOBS)
    assert tree(directory) == OLD


def test_error_names_a_read_only_file(directory, monkeypatch):
    failing(monkeypatch, Path, "write_bytes", 0, errno.EROFS)
    with pytest.raises(UserError, match=r"report\.md: cannot be written: read-only file system"):
        replace_files(directory, NEW, GLOBS)
    assert tree(directory) == OLD


@pytest.mark.parametrize("name", ["report.md", "page.md", "figures"])
def test_symbolic_links_are_refused(directory, tmp_path_factory, name):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "theirs").write_text("theirs")
    target = elsewhere if name == "figures" else elsewhere / "theirs"
    if name == "figures":
        (directory / "figures/a.svg").unlink()
        (directory / "figures").rmdir()
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(target)
    with pytest.raises(UserError, match=f"{name} is a symbolic link"):
        replace_files(directory, NEW, GLOBS)
    assert tree(elsewhere) == {"theirs": "theirs"}
    assert (directory / name).is_symlink()


def test_error_names_a_directory_in_place_of_a_file(directory):
    (directory / "page.md").mkdir()
    with pytest.raises(UserError, match=r"page\.md is a directory"):
        replace_files(directory, NEW, GLOBS)
    assert tree(directory) == OLD


def test_directory_that_matches_a_glob_is_kept(directory):
    (directory / "notes.md").mkdir()
    replace_files(directory, NEW, GLOBS)
    assert (directory / "notes.md").is_dir()


def test_unencodable_text_leaves_every_file_unchanged(directory):
    with pytest.raises(UnicodeEncodeError):
        replace_files(directory, {**NEW, "z.md": "\ud800"}, GLOBS)
    assert tree(directory) == OLD
