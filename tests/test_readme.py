"""The README does what it says: its benchmark is measured and rendered, in its place."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONFIG = """
preset: cpu
machine: here
benchmarks: [softmax, attention]
grid:
  softmax: {seq_len: [64, 128]}
  attention:
    {batch: [1], d_head: [16], seq_len: [64], dtype: [float32], implementation: [eager]}
"""
# What holds for every benchmark and every section holds for this one.
SUITE = ("tests/test_benchmark.py", "tests/reporting/test_pages.py")


def files_of(section: str) -> dict[str, str]:
    """Path -> content of the files that a section of the README tells to write."""
    text = README.split(f"## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"`((?:src|templates)/[^`]+)`[^`]*\n```\w+\n(.*?)```", text, re.DOTALL)
    return dict(found)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with the two files of the README."""
    root = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__", "traces", "*.egg-info")
    for name in ("src", "templates", "config", "profiles", "rules", "tests", "report", "tools"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("Snakefile", "README.md", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, root)
    for path, content in files_of("Add a benchmark").items():
        (root / path).write_text(content)
    return root


def run(root, *command):
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_benchmark_takes_the_two_files_that_the_readme_shows():
    assert set(files_of("Add a benchmark")) == {
        "src/lmperf/benchmarks/softmax.py",
        "templates/sections/softmax.md.j2",
    }


def test_the_benchmark_is_measured_and_rendered_in_its_place(checkout):
    (checkout / "config/config.yaml").write_text(CONFIG)
    run(checkout, "snakemake", "--cores", "1", "report/report.md")
    write_up = (checkout / "report/report.md").read_text()
    headings = re.findall(r"^## (\w+)", write_up, re.MULTILINE)
    assert headings.index("Attention") < headings.index("Softmax") < headings.index("Method")
    page = (checkout / "report/here/softmax.md").read_text()
    assert re.search(r"\| 128 \| [\d.]+ \([\d.]+-[\d.]+; \d+\)", page), page
    assert "here/softmax.md" in write_up


def test_the_suite_stays_green_with_it(checkout):
    (checkout / "config/config.yaml").write_text((ROOT / "config/config.yaml").read_text())
    run(checkout, "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not [gpu]", *SUITE)
