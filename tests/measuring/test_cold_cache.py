import os
import tempfile
from pathlib import Path

import pytest

from lmperf.errors import UserError
from lmperf.measuring.cold_cache import compiling_anew

CACHE = "TORCHINDUCTOR_CACHE_DIR"


def test_what_is_compiled_is_kept_for_one_run(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path))
    folders = []
    for _ in range(2):
        with compiling_anew():
            folders.append(Path(os.environ[CACHE]))
            (folders[-1] / "kernel").touch()
    assert folders[0] != folders[1] and {folder.parent for folder in folders} == {tmp_path}
    assert os.environ[CACHE] == str(tmp_path) and not any(tmp_path.iterdir())


def test_what_is_compiled_needs_no_folder_to_be_named(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with compiling_anew():
        assert Path(os.environ[CACHE]).parent == tmp_path
    assert CACHE not in os.environ


def test_no_room_for_what_is_compiled_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE, str(tmp_path / "nowhere"))
    with (
        pytest.raises(UserError, match=r"no folder for what is compiled .*; set TMPDIR"),
        compiling_anew(),
    ):
        pass
