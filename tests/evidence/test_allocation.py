"""Tests of what a job asks a cluster for."""

import dataclasses

import pytest

from lmperf.config import load_config
from lmperf.evidence.allocation import allocation
from lmperf.evidence.nodes import record_node
from lmperf.evidence.project import Project


@pytest.fixture
def project(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "preset: cpu\npartition: gpu\nbenchmarks: [attention, end_to_end, collectives]\n"
    )
    config = load_config(path)
    record_node(config, tmp_path)
    return Project(config, tmp_path)


def on_gpus(project):
    project.machine = dataclasses.replace(project.machine, kind="cuda")
    return project


def test_only_a_cluster_is_asked_for_time_and_memory(project):
    plan = project.plans["attention"]
    asked = allocation(project, plan)
    assert asked.keys() == {"gpu", "runtime", "mem_mb", "slurm_partition"}
    assert asked["gpu"] == 0, "a CPU is no GPU of a cluster"
    project.config = project.config.model_copy(update={"partition": None})
    assert allocation(project, plan) == {"gpu": 1}


def test_longer_and_larger_benchmarks_ask_for_more(project):
    kernels, models = (allocation(project, project.plans[s]) for s in ("attention", "end_to_end"))
    assert models["mem_mb"] > kernels["mem_mb"]
    assert 10 < kernels["runtime"] < 240 and models["runtime"] > 10


def test_slow_machine_gets_longer_limits(project, monkeypatch):
    plan = project.plans["attention"]
    usual = allocation(project, plan)["runtime"]
    slow = [{"expected_s": "10", "wall_s": "50"}]
    monkeypatch.setattr(type(project), "known_costs", lambda _: slow)
    assert allocation(project, plan)["runtime"] == pytest.approx(5 * (usual - 10) + 10, abs=5)


def test_ranked_benchmark_asks_for_a_gpu_for_each_rank(project):
    plan = dataclasses.replace(project.plans["collectives"], kind="cuda")
    ranks = max(case.axes["ranks"] for case in plan.cases)
    assert ranks >= 2 and allocation(on_gpus(project), plan)["gpu"] == ranks
