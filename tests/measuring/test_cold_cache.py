import os
import tempfile
from pathlib import Path

import pytest

from lmperf.errors import UserError
from lmperf.measuring.cold_cache import empty_compile_cache

CACHE = "TORCHINDUCTOR_CACHE_DIR"


def test_compile_cache_is_removed_after_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    folders = []
    for _ in range(2):
        with empty_compile_cache():
            folders.append(Path(os.environ[CACHE]))
            (folders[-1] / "kernel").touch()
    assert folders[0] != folders[1] and {folder.parent for folder in folders} == {tmp_path}
    assert os.environ[CACHE] == str(tmp_path) and not any(tmp_path.iterdir())


def test_compile_cache_defaults_to_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with empty_compile_cache():
        assert Path(os.environ[CACHE]).parent == tmp_path
    assert CACHE not in os.environ


def test_missing_cache_folder_is_created(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path / "missing"))
    with empty_compile_cache():
        assert Path(os.environ[CACHE]).parent == tmp_path / "missing"


@pytest.mark.parametrize(
    ("name", "words"), [(CACHE, rf"set {CACHE} \(now .*file\) to"), ("", "set TMPDIR to")]
)
def test_folder_that_cannot_be_created_is_a_user_error(tmp_path, monkeypatch, name, words):
    (tmp_path / "file").touch()
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    if name:
        monkeypatch.setenv(name, str(tmp_path / "file"))
    with (
        pytest.raises(UserError, match=rf"no folder .* for the compile cache .*; {words}"),
        empty_compile_cache(),
    ):
        pass
