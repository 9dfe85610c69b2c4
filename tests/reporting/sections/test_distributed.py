"""The tables of several GPUs: what stands in which cell."""

from __future__ import annotations

import planted
import pytest
from planted_ranks import (
    collective,
    evidence,
    memory,
    profiled,
    step,
)

from lmperf.reporting.sections import section


def table(page, id_: str):
    """The lines of the first table with this number, by implementation; None: the only line."""
    found = next(one for one in page.tables if one.id == id_)
    names = [column.header for column in found.columns]
    lines = [dict(zip(names, map(str, line), strict=True)) for line in found.lines]
    return {line.get("implementation"): line for line in lines}


def test_step_stands_beside_communication_and_peak():
    rows = [step("one_rank", 100), step("ddp", 50), profiled("ddp", 55, hidden=0.75)]
    line = table(planted.page("distributed", evidence(*rows)), "D2")["DistributedDataParallel"]
    assert line["over one rank"].startswith("2.00x")
    assert line["tokens/s"] == "41,000"
    assert (line["communication (ms)"], line["hidden (%)"]) == ("50.0", "75.0 (75.0-75.0)")
    assert line["peak of a rank (GiB)"] == "50.0"


@pytest.mark.parametrize(
    ("name", "timed", "apart", "shown"),
    [
        ("ddp", 32, 31, 32),
        ("ddp", 31, 32, 32),
        ("ddp", 32, None, 32),
        ("ddp", 25, None, None),  # less than the update needs
        ("ddp", None, None, None),
        ("fsdp2", 32, 31, 31),  # its process does not count all gradients
        ("fsdp2_compiled", 32, None, None),
    ],
)
def test_peak_is_the_larger_one(name, timed, apart, shown):
    rows = [step(name, 50, peak_mib=timed and timed * 1024)]
    rows += [memory(name, "peak", apart)] if apart else []
    peak = section(evidence(*rows), "distributed").steps.frame["peak"].iloc[0]
    assert peak == pytest.approx(shown) if shown else peak != peak


def test_ledger_shows_how_much_longer_profiled_steps_are():
    rows = [step("ddp", 100), profiled("ddp", 150, hidden=0.4)]
    line = table(planted.page("distributed", evidence(*rows)), "D3")[None]
    assert line["beside the timed step"] == "+50.0 %"
    assert line["hidden (ms)"] == "20.0 (20.0-20.0)"
    assert line["exposed (ms)"] == "30.0 (30.0-30.0)"
    assert line["idle"] == "26.7 %"


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [
        ("copy", 2, 1),
        ("all_reduce", 2, 1),
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 2, 0.5),
    ],
)
def test_bus_bandwidth_counts_as_nccl_tests_do(operation, ranks, factor):
    of = evidence(collective(operation, 1e9, 1.0, ranks=ranks))
    assert section(of, "collectives").every.frame["bus"].iloc[0] == pytest.approx(1000 * factor)
