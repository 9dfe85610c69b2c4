"""Tests that the examples pass the correctness check, configured as in their docstrings."""

from pathlib import Path

import pytest
import torch.distributed as dist
import yaml
from vocabularies import use_words

from lmperf.benchmark import Case, Rank, RankedTimed
from lmperf.benchmarks import load
from lmperf.config.model import Config
from lmperf.transformer.sizes import SIZES, ModelSize

pytestmark = pytest.mark.process

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("student_*.py"))
CELLS = {
    "attention": {"batch": 2, "seq_len": 192, "d_head": 16, "dtype": "float32", "causal": True},
    "flash_attention": {
        **{"batch": 1, "heads": 2, "seq_len": 128, "d_head": 16, "dtype": "bfloat16"},
        **{"causal": True, "cuda_graph": False},
    },
    "lrpe": {
        **{"batch": 1, "heads": 2, "shape": "3x5x4", "d_head": 16, "extra_tokens": 3},
        "dtype": "float32",
    },
    "end_to_end": {"size": "tiny", "context_length": 32, "batch": 1, "dtype": "float32"},
    "distributed": {
        **{"size": "tiny", "context_length": 32, "batch": 2, "ranks": 1, "dtype": "float32"},
    },
}


def configured(path):
    """Return stem -> name -> implementation from the YAML in the docstring of an example."""
    lines = path.read_text().split('"""')[1].splitlines()
    block = "\n".join(line for line in lines if line.startswith("    "))
    config = Config.model_validate(yaml.safe_load(block) | {"peers": False})
    return {stem: config.external(stem) for stem in CELLS if config.external(stem)}


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Returns a function that prepares a benchmark's case, in a process group of its own."""
    monkeypatch.setitem(SIZES, "tiny", ModelSize(64, 128, 2, 4))
    use_words(monkeypatch)
    dist.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)

    def prepared(benchmark, case):
        if isinstance(benchmark, RankedTimed):
            return benchmark.prepare_rank(case, Rank(0, 1, "cpu", "gloo"), 1, {})
        return benchmark.prepare(case, "cpu", 1, {})

    yield prepared
    dist.destroy_process_group()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_passes_its_gate(path, prepare):
    for stem, custom in configured(path).items():
        run_and_check(load(stem, custom), prepare)


def run_and_check(benchmark, prepare):
    workload = prepare(benchmark, Case(tuple(CELLS[benchmark.stem].items()), "mine"))
    for phase in workload.phases.values():
        phase.run(phase.before())
    gate = workload.gate(list(benchmark.phases))
    assert gate.passed, (gate.errors, gate.bounds)


def test_model_of_the_course_passes_its_gate(prepare, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES[0].parent / "course"))
    run_and_check(load("end_to_end", {"mine": "cs336_basics.model:BasicsTransformerLM"}), prepare)


def test_examples_cover_every_kind_of_custom_implementation():
    named = {stem for path in EXAMPLES for stem in configured(path)}
    assert named == set(CELLS) and len(EXAMPLES) == 5
