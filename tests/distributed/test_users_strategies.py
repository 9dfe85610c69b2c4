"""A user's strategy beside ours: which classes are accepted, and where it is measured."""

import pytest
import torch
import torch.distributed as dist
from vocabularies import use_words

from examples.student_model import LanguageModel
from lmperf.benchmark import Implementation, Rank
from lmperf.benchmarks import load
from lmperf.own.model import build
from lmperf.transformer.counted_flops import forward_flops
from lmperf.transformer.sizes import SIZES, ModelSize

OURS = "lmperf.distributed"


@pytest.mark.parametrize("size", ["tiny", "3.4B"])
def test_large_implementations_are_timed_alone(size):
    benchmark = load("distributed")
    preset = "cpu" if size == "tiny" else "gpu"
    groups = [g for g in benchmark.groups(benchmark.cases(preset)) if g[0].axes["size"] == size]
    assert {len(group) == 1 for group in groups if group[0].axes["ranks"] > 1} == {size != "tiny"}
    assert all(
        (g[0].axes["ranks"] == 1) == g[0].implementation.startswith("one_rank") for g in groups
    )


def test_users_strategy_is_in_the_head_beside_a_small_size():
    benchmark = load("distributed", {"mine": f"{OURS}.data_parallel:DataParallel"})
    groups = benchmark.groups(benchmark.cases("cpu"))
    beside = [{case.implementation for case in group} for group in groups]
    assert any({"mine", "ddp", "overlapped"} <= names for names in beside)
    assert "mine" in {case.implementation for case in benchmark.head_cases("gpu")}


@pytest.fixture
def one_process(tmp_path, monkeypatch):
    """A process group of this process, and small models of the size `tiny`."""
    monkeypatch.setitem(SIZES, "tiny", ModelSize(64, 128, 2, 4))
    use_words(monkeypatch)
    dist.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    yield Rank(0, 1, "cpu", "gloo")
    dist.destroy_process_group()


@pytest.mark.process
def test_memory_of_a_users_strategy_is_of_the_model_that_it_trains(one_process):
    models = [("own", "examples.student_model:LanguageModel", {})]
    entry = f"{OURS}.data_parallel:DataParallel"
    mine = Implementation("mine", entry, origin="custom", models=models)
    benchmark = load("distributed_memory", {"mine": mine})
    case = next(case for case in benchmark.cases("cpu") if case.implementation == "mine")
    rows = benchmark.observe_rank(case, "train_step", one_process, 0)
    model = build(LanguageModel, SIZES["tiny"], 32)
    weights = 4 * sum(one.numel() for one in model.parameters()) / 2**20
    found = {row["moment"]: row for row in rows}
    assert list(found) == ["init", "before_step", "after_step", "peak"]
    assert {row["model"] for row in rows} == {"own"}
    after = found["after_step"]
    assert [round(after[f"{n}_mib"] / weights, 1) for n in ("parameters", "optimizer")] == [1, 2]


@pytest.mark.process
@pytest.mark.parametrize("name", ["ddp", "fsdp2", "fully_sharded"])
def test_references_train_the_users_model_as_well(one_process, name):
    models = [("own", "examples.student_model:LanguageModel", {})]
    entry = f"{OURS}.data_parallel:DataParallel"
    mine = Implementation("mine", entry, origin="custom", models=models)
    benchmark, alone = load("distributed", {"mine": mine}), load("distributed")
    case = next(case for case in benchmark.cases("cpu") if case.implementation == name)
    work = benchmark.prepare_rank(case, one_process, 0, {})
    assert work.gate(["train_step"]).passed and work.columns["model"] == "own"
    assert not alone.implementation(name).models
    assert load("distributed_memory", {"mine": mine}).implementation(name).models == models


@pytest.mark.process
def test_row_names_the_users_model_with_its_parameters_and_flops(one_process):
    models = [("own", "examples.student_model:LanguageModel", {}), ("", "", {})]
    entry = f"{OURS}.data_parallel:DataParallel"
    mine = Implementation("mine", entry, origin="custom", models=models)
    benchmark = load("distributed", {"mine": mine})
    case = next(case for case in benchmark.cases("cpu") if case.implementation == "mine")
    work = benchmark.prepare_rank(case, one_process, 0, {})
    model = build(LanguageModel, SIZES["tiny"], 32)
    assert work.gate(["train_step"]).passed and work.columns["model"] == "own"
    assert work.columns["parameters"] == sum(one.numel() for one in model.parameters())
    tokens = torch.zeros(case.axes["batch"], 32, dtype=torch.int64)
    assert work.phases["train_step"].flops == 3 * forward_flops(model, tokens)
