"""Tests that the source file of a module is found without importing any module."""

import sys
from importlib.machinery import EXTENSION_SUFFIXES

import pytest

from lmperf.sources import find


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder that is on sys.path."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_package_wins_over_extension_module_and_namespace(place):
    (place / "a_top").mkdir()
    (place / "a_top/__init__.py").write_text("raise RuntimeError('imported')\n")
    inside = place / "a_top/inner"
    inside.mkdir()
    assert find("a_top.inner").source is None and not find("a_top.inner").is_closed
    for name in ("inner.py", f"inner{EXTENSION_SUFFIXES[0]}", "inner/__init__.py"):
        (place / "a_top" / name).touch()
        sys.path.append(f"{place}/nothing_{name}")  # results are cached by sys.path
        assert find("a_top.inner").file == place / "a_top" / name
    assert find("a_top.inner").is_environment is False
    assert "a_top" not in sys.modules


@pytest.mark.parametrize("name", ["", ".", "a b", "..x", "a_top.", "nothing_of_this_name.x"])
def test_invalid_name_is_not_found(place, name):
    assert find(name) is None


def test_file_path_is_not_found_as_module(place):
    (place / "a_folder").mkdir()
    (place / "file.py").touch()
    for name in (f"a_folder.{place}/file", "a_folder.../file", f"{place}/file"):
        assert find(name) is None


def test_module_without_spec_is_not_found(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert find("__main__") is None


@pytest.mark.parametrize("name", ["json", "json.decoder", "sys", "_json", "pytest"])
def test_stdlib_and_installed_packages_count_as_environment(name):
    assert find(name).is_environment
