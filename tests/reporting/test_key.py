"""The key of a rendering (a digest of code, templates and configuration).

The key changes with each input of the report other than the evidence, and with nothing else.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lmperf.config import Config
from lmperf.evidence.store import file_digest
from lmperf.reporting.key import rendering_key

ROOT = Path(__file__).parents[2]
# Renders a report and prints the file of each lmperf module that was imported.
USED = """
import sys
from pathlib import Path
from lmperf.cli import main
assert main(["report", sys.argv[1]]) == 0
for module in list(sys.modules.values()):
    if module.__name__.partition(".")[0] == "lmperf" and getattr(module, "__file__", None):
        print(module.__file__)
"""


# Rendering these benchmarks imports every module that any report needs, including figures.
FEW = ("attention", "lrpe", "memory_timeline", "mixed_precision")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the sources and templates, with some H200 evidence, that tests may change."""
    root = tmp_path_factory.mktemp("checkout")
    for folder in ("src/lmperf", "templates", "config"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    machine = root / "report/nvidia-h200"
    (machine / "evidence").mkdir(parents=True)
    shutil.copy(ROOT / "report/nvidia-h200/machine.json", machine)
    for stem in FEW:
        for path in (ROOT / "report/nvidia-h200/evidence").glob(f"{stem}.*"):
            shutil.copy(path, machine / "evidence")
    return root


def key(root, config=None):
    return rendering_key(config or Config(), root, root / "src/lmperf")


def changed(root, path, text):
    """Whether the key changes when a file has the content ``text(content)``; restores the file."""
    before, content = key(root), path.read_bytes()
    path.write_bytes(text(content))
    try:
        return key(root) != before
    finally:
        path.write_bytes(content)


@pytest.mark.process
@pytest.mark.machine
def test_every_module_that_rendering_imports_is_in_the_key(checkout, monkeypatch):
    command = [sys.executable, "-c", USED, "nvidia-h200"]
    environment = {"PYTHONPATH": str(checkout / "src"), "PATH": "/usr/bin"}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    used = [Path(line) for line in done.stdout.splitlines() if line.endswith(".py")]
    sections = [path for path in used if "reporting/sections" in str(path)]
    assert len(used) > 30 and len(sections) > 7, "the sections are imported by their names"
    digested = set()
    record = lambda path: digested.add(path) or file_digest(path)  # noqa: E731
    monkeypatch.setattr("lmperf.reporting.key.file_digest", record)
    key(checkout)
    assert set(used) <= digested
    for path in (used[0], sections[0]):
        assert changed(checkout, path, lambda content: content + b"\nCHANGED = True\n"), path


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["templates/**/*.j2", "src/lmperf/reporting/**/*.csv"])
def test_every_template_and_published_figure_changes_the_key(checkout, pattern):
    paths = sorted(checkout.glob(pattern))
    assert len(paths) >= 5
    for path in paths:
        assert changed(checkout, path, lambda content: content + b"\n"), path


def test_configuration_changes_the_key(checkout):
    assert key(checkout, Config(preset="gpu")) != key(checkout)


def test_other_files_do_not_change_the_key(checkout):
    before = key(checkout)
    tests = checkout / "tests"
    tests.mkdir()
    (tests / "test_new.py").write_text("x = 1")
    assert key(checkout) == before
