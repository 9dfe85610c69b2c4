"""Tests of the hardware of a cluster's nodes, which is looked up there and read elsewhere."""

import json

import pytest

from lmperf.config import load_config
from lmperf.errors import UserError
from lmperf.evidence.machine import detect
from lmperf.evidence.nodes import file_of, machine_of, record_node


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_PARTITION", raising=False)
    path = tmp_path / "config.yaml"
    path.write_text("preset: cpu\npartition: gpu\n")
    return load_config(path)


def edit(path, **facts):
    known = json.loads(path.read_text())
    known["facts"] |= facts
    path.write_text(json.dumps(known))


def test_unknown_nodes_are_a_user_error_that_says_how_to_look(config, tmp_path):
    with pytest.raises(UserError, match=r"not known yet; .* detect --config partition="):
        machine_of(config, tmp_path)
    file_of(tmp_path, "gpu").parent.mkdir(parents=True)
    file_of(tmp_path, "gpu").write_text("{")
    with pytest.raises(UserError, match="not known yet"):
        machine_of(config, tmp_path)


def test_recorded_node_is_the_machine_everywhere(config, tmp_path, monkeypatch):
    path = record_node(config, tmp_path)
    here = detect("cpu")
    assert machine_of(config, tmp_path) == here
    edit(path, device="another")  # where the workflow runs, nothing is compared
    assert machine_of(config, tmp_path).environment != here.environment


def test_job_refuses_a_node_that_differs(config, tmp_path, monkeypatch):
    path = record_node(config, tmp_path)
    monkeypatch.setenv("SLURM_JOB_PARTITION", "gpu")
    assert machine_of(config, tmp_path) == detect("cpu")
    edit(path, torch="1.0")
    with pytest.raises(UserError, match=r"partition gpu: torch 1\.0, now "):
        machine_of(config, tmp_path)


def test_detect_without_partition_is_a_user_error(config, tmp_path):
    with pytest.raises(UserError, match="partition is not set"):
        record_node(config.model_copy(update={"partition": None}), tmp_path)
