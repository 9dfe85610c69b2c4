"""The README does what it says: its commands run, its benchmark is measured and rendered."""

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
# Small cells of what the commands of every day are about.
EVERY_DAY = """
preset: cpu
machine: here
benchmarks: [attention, flash_attention, lrpe]
grid:
  attention: {batch: [1], d_head: [16], seq_len: [64], dtype: [float32], implementation: [eager]}
  flash_attention:
    {batch: [1], heads: [1], seq_len: [256], d_head: [16], dtype: [float32],
     implementation: [eager, tiled, sdpa]}
  lrpe: {batch: [1], heads: [1], shape: ["8x8"], d_head: [16], implementation: [eager, copy]}
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
    root = tmp_path_factory.mktemp("readme") / "checkout"
    copy_of_the_checkout(root, "tests", "report", "tools")
    command(root, "lmperf new softmax")
    return root


def copy_of_the_checkout(root, *more):
    ignored = shutil.ignore_patterns("__pycache__", "traces", "*.egg-info")
    for name in ("src", "templates", "config", "profiles", "rules", *more):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in ("Snakefile", "README.md", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, root)
    return root


def commands_of(*sections):
    """The lines of the README's sections that call lmperf, as they stand there."""
    texts = [README.split(f"## {section}\n")[1].split("\n## ")[0] for section in sections]
    return [line for text in texts for line in re.findall(r"^    (lmperf .*)$", text, re.MULTILINE)]


def command(root, line):
    """What a line prints to a terminal, in a shell whose `lmperf` is that of the checkout."""
    tools = root.parent / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "lmperf").write_text(f'#!/bin/sh\nexec {sys.executable} -m lmperf.cli "$@"\n')
    (tools / "lmperf").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "LMPERF_COMMIT": "0" * 40}
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=root,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


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


def test_the_files_are_those_that_a_command_writes(checkout):
    for path, content in files_of("Add a benchmark").items():
        assert (checkout / path).read_text() == content


def test_the_commands_of_every_day_do_what_they_say(tmp_path):
    root = copy_of_the_checkout(tmp_path / "checkout", "examples")
    (root / "config/config.yaml").write_text(EVERY_DAY)
    said = {line: command(root, line) for line in commands_of("Every day", "Add an implementation")}
    assert len(said) == 10
    assert (root / "table.tex").read_text().startswith("% Plain PyTorch attention")
    for line, words in {
        "lmperf doctor": "flash_attention: 3 cases",
        "lmperf list flash_attention": "sdpa: missing",
        "lmperf run flash_attention": "verdict",
        "lmperf measure attention ": "report/here/evidence/attention.csv",
        "lmperf show attention ": "Plain PyTorch attention",
        "lmperf try examples.student_attention": "mine",
        "lmperf try examples.student_lrpe": "mine",
    }.items():
        (printed,) = [text for given, text in said.items() if given.startswith(line)][:1]
        assert words in printed, line
    assert not (root / "report/here/evidence/flash_attention.csv").exists()


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
