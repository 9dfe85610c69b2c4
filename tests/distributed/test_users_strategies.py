"""A user's strategy beside ours: which classes are accepted, and where it is measured."""

import pytest

from lmperf.benchmarks import load

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
