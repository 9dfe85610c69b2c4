"""Tests of `lmperf new`, which makes the two files of a new benchmark."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(folder):
    """The folders of a checkout into which the files of a benchmark are written."""
    for path in ("src/lmperf/benchmarks", "templates"):
        (folder / path).mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_new_outside_a_checkout_is_refused(folder, lmperf):
    code, _, said = lmperf("new", "gelu")
    assert code == 2 and "src/lmperf/benchmarks does not exist; change into a checkout" in said


INVALID = ("Gelu", "../x", "", "x" * 65, "none", "class", "workload")
NAMES = dict.fromkeys(INVALID, "is not a valid name") | {"cost": "cost is a file of a report;"}


@pytest.mark.parametrize(("name", "words"), NAMES.items())
def test_invalid_benchmark_name_is_refused(checkout, lmperf, name, words):
    code, out, said = lmperf("new", name)
    assert code == 2 and not out and words in said


def test_files_are_printed_and_never_overwritten(checkout, lmperf):
    code, out, _ = lmperf("new", "layer_norm")
    assert code == 0
    benchmark, template = (checkout / line for line in out.split())
    assert "class LayerNorm(Timed):" in benchmark.read_text()
    assert "Layer norm: how fast is it?" in template.read_text()
    code, _, said = lmperf("new", "layer_norm")
    assert code == 0, "they have the same content"
    benchmark.write_text("edited")
    code, _, said = lmperf("new", "layer_norm")
    assert code == 2 and "layer_norm.py exists already" in said


def test_new_module_passes_the_linter(checkout, lmperf):
    for name in ("a", "layer_norm_of_a_bfloat16_residual"):
        assert lmperf("new", name)[0] == 0
    for check in (("check",), ("format", "--check")):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "src"], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout
