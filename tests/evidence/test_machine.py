"""Tests of the machine at hand: its slug, its settings and its environment."""

import os

import pytest

from lmperf.config.machine_names import is_slug
from lmperf.evidence import machine


@pytest.mark.parametrize(
    ("kind", "facts", "slug"),
    [
        ("cpu", {"device": "Intel(R) Xeon(R) CPU @ 2.20GHz"}, "cpu-intel-xeon-cpu-2-20ghz"),
        ("cuda", {"device": "NVIDIA H200", "devices": 2}, "nvidia-h200-x2"),
        ("cuda", {"device": "NVIDIA " + "a" * 60, "devices": 2}, "nvidia-" + "a" * 54 + "-x2"),
        ("cuda", {"device": "画像"}, "unnamed"),
    ],
)
def test_slug_of_a_machine_has_the_words_of_its_device(monkeypatch, kind, facts, slug):
    monkeypatch.setattr(machine, "accelerator", lambda: kind)
    monkeypatch.setattr(machine, "cpu_model", lambda: facts["device"])
    monkeypatch.setattr(machine, "nvidia_facts", lambda: facts)
    found = machine.detect.__wrapped__().slug
    assert found == slug and is_slug(found)


def test_cpu_quota_is_a_fact_of_another_environment(monkeypatch):
    def detected(usable):
        monkeypatch.setattr(machine.processors, "usable", lambda: usable)
        return machine.detect.__wrapped__("cpu")

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(machine.processors, "affinity", lambda: 2)
    whole, half = detected(2.0), detected(0.5)
    assert "cores_of_host" not in whole.facts and (
        whole.facts["cores"],
        whole.facts["threads"],
    ) == (2, 2)
    assert (half.facts["cores"], half.facts["cores_of_host"], half.facts["threads"]) == (0.5, 2, 1)
    assert half.facts["settings"]["CPU quota"] == "0.5"
    assert detected(1.5).environment not in (whole.environment, half.environment)


def test_settings_of_nccl_are_facts_of_several_gpus(monkeypatch):
    monkeypatch.setattr(machine, "accelerator", lambda: "cuda")
    for name, value in {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "3"}.items():
        monkeypatch.setenv(name, value)
    for devices in (1, 2):
        facts = {"device": "NVIDIA H200", "devices": devices}
        monkeypatch.setattr(machine, "nvidia_facts", lambda facts=facts: facts)
        found = machine.detect.__wrapped__().facts["settings"]
        assert found["OMP_NUM_THREADS"] == "3" and "NCCL_DEBUG" not in found
        assert found.get("NCCL_ALGO") == ("Tree" if devices == 2 else None)
