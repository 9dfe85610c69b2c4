"""Peers (other projects' implementations) are measured if their packages are installed.

In that case the benchmarks treat them as if the configuration named them.
"""

import pytest

from lmperf.benchmark import Implementation
from lmperf.benchmarks import load, stems
from lmperf.config.model import Config
from lmperf.evidence.facts import write_facts
from lmperf.evidence.keys import code_of, row_key
from lmperf.evidence.project import Project
from lmperf.evidence.review import review
from lmperf.evidence.store import files_of
from lmperf.own.check import check_names
from lmperf.peers.table import PEERS


def configured(**keys):
    return Config.model_validate(keys)


def names(benchmark, preset):
    return {case.implementation for case in benchmark.cases(preset)}


def test_installed_peers_have_cases_they_support(packages):
    for package in ("flash-attn-4", "torchao"):
        packages.install(package, "1.0")
    config = configured()
    found = {stem: config.external(stem) for stem in stems() if config.external(stem)}
    assert {stem: set(peers) for stem, peers in found.items()} == {
        "flash_attention": {"flash_attention_4", "flash_attention_4_deterministic"},
        "end_to_end": {"fp8_tensorwise"},
        "ladder_loss": {"fp8_tensorwise"},
    }
    attention, models = (load(stem, found[stem]) for stem in ("flash_attention", "end_to_end"))
    assert not names(attention, "cpu") & set(PEERS)
    assert not names(models, "cpu") & set(PEERS)
    cells = [c.axes for c in attention.cases("gpu") if c.implementation == "flash_attention_4"]
    assert {axes["dtype"] for axes in cells} == {"bfloat16"} and len(cells) > 20
    cases = [case for case in models.cases("gpu") if case.implementation in PEERS]
    assert {(axes["size"], axes["batch"]) for axes in (case.axes for case in cases)} >= {
        *(("0.13B", 4), ("0.97B", 4), ("0.97B", 16), ("3.4B", 8)),
    }
    packages.install("torchao", "2.0")
    assert config.external("end_to_end")["fp8_tensorwise"].version == "2.0"


def test_float8_steps_are_timed_and_trained_where_torchao_is_installed(packages):
    packages.install("torchao", "0.18")
    name = "fp8_tensorwise"
    for stem in ("end_to_end", "ladder_loss"):
        benchmark = load(stem, configured().external(stem))
        cases = [case for case in benchmark.cases("gpu") if case.implementation == name]
        assert {case.axes["size"] for case in cases} >= {"0.13B", "0.97B"}
        assert {case.axes.get("dtype", "bfloat16") for case in cases} == {"bfloat16"}
        assert name not in names(benchmark, "cpu")
        assert {benchmark.phases_of(case) for case in cases} == {("train_step",)}


@pytest.mark.slow
def test_rows_of_every_peer_have_a_key(packages):
    for peer in PEERS.values():
        packages.install(peer.package, "1.0")
    for stem in stems():
        benchmark = load(stem, configured().external(stem))
        for name in benchmark.external:
            assert code_of(benchmark, name)["version"] == "1.0", (stem, name)


@pytest.mark.slow
def test_names_and_modules_of_peers_are_valid(packages):
    for peer in PEERS.values():
        packages.install(peer.package, "1.0")
    for stem in stems():
        check_names(load(stem, configured().external(stem)))
    models = load("end_to_end", configured().external("end_to_end"))
    assert {"fp8_tensorwise"} == {*models.external}
    assert all(models.callable_of(name) is not None for name in models.external)


def test_configuration_leaves_peers_out_or_replaces_them(packages):
    stem, name = "end_to_end", "fp8_tensorwise"
    packages.install("torchao", "0.18")
    assert set(configured(peers=[name]).external(stem)) == {name}
    assert configured(peers=["flash_attention_4"]).external(stem) == {}
    assert configured(peers=False).external(stem) == {}
    mine = configured(implementations={stem: {name: "a.b:C"}}).external(stem)
    assert mine == {name: Implementation(name, "a.b:C", origin="custom")}


@pytest.mark.slow
def test_peer_rows_stay_fresh_on_a_machine_without_the_peer(packages, tmp_path):
    stem, name = "end_to_end", "fp8_tensorwise"
    there = {name: "0.8"}
    config = configured()
    benchmark = load(stem, config.external(stem, there))
    case = next(c for c in benchmark.cases("gpu") if c.implementation == name)
    said = {"status": "oom", "environment": "e" * 16, "measured_at": "2026-01-02T03:04:05+00:00"}
    case_row = {**case.axes, "implementation": name, **said}
    rows = [{**case_row, "phase": phase} for phase in benchmark.phases_of(case)]
    directory = tmp_path / "report" / "elsewhere"
    rows = [{**row, "key": row_key(benchmark, row, "e" * 16)} for row in rows]
    files_of(benchmark, directory).publish(rows)
    other = {"f" * 16: {"kind": "cuda", "device": "another", "peers": {name: "0.7"}}}
    for version, stale in ({name: "0.8"}, []), ({name: "0.9"}, [stem]):
        environments = {"e" * 16: {"kind": "cuda", "device": "another", "peers": version}, **other}
        facts = {"machine": "elsewhere", "preset": "gpu", "environments": environments}
        write_facts(directory, facts)
        found = review(Project(config, tmp_path), "elsewhere")
        assert {row["implementation"] for row in found.rows[stem]} == {name}
        assert [cause.stem for cause in found.of_kinds(["stale"])] == stale
