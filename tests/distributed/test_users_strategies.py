"""A user's class beside ours: which kinds are accepted, and how they are recognised."""

import pytest

from lmperf.benchmarks import load
from lmperf.custom import broken_ones
from lmperf.distributed.data_parallel import DataParallel
from lmperf.distributed.fully_sharded import FullySharded
from lmperf.distributed.sharded_optimizer import ShardedOptimizer
from lmperf.distributed.strategies import kind_of

OURS = "lmperf.distributed"


def get_sharded_optimizer(params, optimizer_cls, **kwargs):
    """As in the courses' adapters."""


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (DataParallel, "ddp"),
        (FullySharded, "fsdp"),
        (ShardedOptimizer, "sharded_optimizer"),
        (get_sharded_optimizer, "sharded_optimizer"),
    ],
)
def test_kind_follows_from_the_arguments(made, kind):
    assert kind_of(made) == kind


@pytest.mark.process
def test_wrappers_and_optimizers_are_accepted_and_other_classes_not():
    mine = {
        "ddp": f"{OURS}.data_parallel:DataParallel",
        "fsdp": f"{OURS}.fully_sharded:FullySharded",
        "sharded": f"{OURS}.sharded_optimizer:ShardedOptimizer",
        "other": f"{OURS}.memory:Strategy",
    }
    broken = broken_ones(load("distributed", mine))
    assert set(broken) == {"other"}
    assert "must be a class or function of (module)" in broken["other"]


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
